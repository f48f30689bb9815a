"""What torchrun and SLURM say about the processes that they started, as options of the trainer."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from lightning.pytorch.plugins.environments import SLURMEnvironment
from torch.distributed import is_torchelastic_launched

from tabicl_linear.errors import ConfigError

INTERACTIVE = ("bash", "interactive")
"""Names of SLURM jobs in which a person types: no processes are started by `srun` there."""


class Launch(NamedTuple):
    """Processes that were started from outside, one for each device.

    Attributes:
        per_node: Processes on each node.
        nodes: Nodes.
        by_slurm: Whether `srun` started them.
    """

    per_node: int
    nodes: int
    by_slurm: bool

    @classmethod
    def detect(cls) -> "Launch | None":
        """What started this process; None where it is the only one, or starts the others itself.

        Raises:
            ConfigError: Nodes with different numbers of processes.
        """
        environment = os.environ
        if is_torchelastic_launched():
            total, local = (int(environment[f"{kind}WORLD_SIZE"]) for kind in ("", "LOCAL_"))
            nodes, by_slurm = total // local, False
        elif "SLURM_STEP_ID" in environment and environment["SLURM_JOB_NAME"] not in INTERACTIVE:
            total, nodes = (int(environment[f"SLURM_{kind}"]) for kind in ("NTASKS", "NNODES"))
            local, by_slurm = total // nodes, True
        else:
            return None
        if local * nodes != total:
            raise ConfigError(
                f"{total} processes on {nodes} nodes: start equally many on each (--nproc-per-node "
                "of torchrun, --ntasks-per-node of SLURM)."
            )
        return cls(local, nodes, by_slurm)

    def completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The trainer's options with those filled in that are at their defaults."""
        filled = dict(options)
        if filled["devices"] == "auto":
            filled["devices"] = self.per_node
        if filled["num_nodes"] == 1:
            filled["num_nodes"] = self.nodes
        if filled["strategy"] == "auto" and self.per_node * self.nodes > 1:
            filled["strategy"] = "ddp"
        if self.by_slurm and filled["plugins"] is None:
            # The run's own checkpoint closes the accumulation window and is where a resume looks;
            # Lightning's would do neither. The batch script requeues (docs/cluster.md).
            filled["plugins"] = [SLURMEnvironment(auto_requeue=False)]
        return filled

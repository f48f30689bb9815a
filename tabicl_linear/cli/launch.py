"""Runs of several processes: their start by torchrun or SLURM, and the error if one is lost."""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from lightning.pytorch.plugins.environments import LightningEnvironment, SLURMEnvironment
from lightning.pytorch.strategies import Strategy, StrategyRegistry
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch.distributed import is_torchelastic_launched
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.training.task import NonFiniteTraining

INTERACTIVE = ("bash", "interactive")
"""Names of interactive SLURM jobs, in which `srun` has not started any processes."""

LOST = "timeout|timed out|connection (closed|reset)|broken pipe"
"""Pattern of the messages of gloo and NCCL when another process does not answer."""


def is_first_process() -> bool:
    """Whether this is the process of rank 0, the only one that prints and writes files."""
    return bool(rank_zero_only.rank == 0)  # type: ignore[attr-defined]


class LostProcess(RuntimeError):
    """Another process of the run has ended, or does not answer.

    Args:
        error: The error of the communication library (gloo or NCCL).
        checkpoint: The run's checkpoint, to resume from; None if there is none yet.
    """

    def __init__(self, error: RuntimeError, checkpoint: Path | None) -> None:
        again = "start all of them again."
        if checkpoint is not None:
            again = f"resume with: tabicl-linear fit --ckpt_path {checkpoint}"
        super().__init__(
            "Another process ended, or did not answer within --rank_timeout_minutes "
            f"({str(error).splitlines()[0]}): end the remaining ones, and {again}"
        )

    @staticmethod
    def explains(error: RuntimeError) -> bool:
        """Whether the message of an error shows that another process is lost."""
        return re.search(LOST, str(error), re.IGNORECASE) is not None


def error_of_forked(
    error: ProcessExitedException | ProcessRaisedException, checkpoint: Path | None
) -> Exception | None:
    """The error for which a forked process ended, rebuilt from the text that PyTorch passes on.

    The text is a traceback that ends with the line of the error, or a line about a signal.

    Args:
        error: The error that PyTorch raises in the first process.
        checkpoint: The run's checkpoint, which a `LostProcess` names; None if there is none yet.

    Returns:
        An error of a kind that the command line shows as one line; None for any other error.
    """
    line = str(error).strip().rpartition("\n")[2]
    name, _, text = line.partition(": ")
    for kind in (NonFiniteTraining, ConfigError, CheckpointError):
        if name == f"{kind.__module__}.{kind.__qualname__}":
            return kind(text)
    original = RuntimeError(line)
    lost = isinstance(error, ProcessExitedException) or LostProcess.explains(original)
    return LostProcess(original, checkpoint) if lost else None


class Launch(NamedTuple):
    """The processes that torchrun or `srun` has started for this run.

    Attributes:
        per_node: Processes on each node, one for each device.
        nodes: Number of nodes.
        by_slurm: Whether `srun` started them.
    """

    per_node: int
    nodes: int
    by_slurm: bool

    @classmethod
    def detect(cls) -> "Launch | None":
        """Read the launch from the environment; None if no launcher started this process.

        Raises:
            ConfigError: Nodes have different numbers of processes, or SLURM variables are missing.
        """
        environment = os.environ
        if is_torchelastic_launched():
            total, local = (int(environment[f"{kind}WORLD_SIZE"]) for kind in ("", "LOCAL_"))
            nodes, by_slurm = total // local, False
        elif (
            "SLURM_STEP_ID" in environment and environment.get("SLURM_JOB_NAME") not in INTERACTIVE
        ):
            total, nodes = (_slurm_number(kind) for kind in ("NTASKS", "NNODES"))
            local, by_slurm = total // nodes, True
        else:
            return None
        if local * nodes != total:
            raise ConfigError(
                f"{total} processes on {nodes} nodes: start the same number on each "
                "(--nproc-per-node of torchrun, --ntasks-per-node of SLURM)."
            )
        return cls(local, nodes, by_slurm)

    def completed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The trainer's options, where those left at their defaults follow the launch."""
        complete = dict(options)
        if complete["devices"] == "auto":
            complete["devices"] = self.per_node
        if complete["num_nodes"] == 1:
            complete["num_nodes"] = self.nodes
        if complete["strategy"] == "auto" and self.per_node * self.nodes > 1:
            complete["strategy"] = "ddp"
        if self.by_slurm and complete["plugins"] is None:
            # Lightning's requeueing saves a checkpoint of its own, possibly within an accumulation
            # window, and in a place where no resume looks. Ours is saved at the end of a window,
            # and the batch script requeues (docs/cluster.md).
            complete["plugins"] = [SLURMEnvironment(auto_requeue=False)]
        return complete


def completed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's options, where those left at their defaults follow how the run was started.

    Raises:
        ConfigError: Nodes have different numbers of processes, or SLURM's variables are missing.
    """
    launch = Launch.detect()
    if launch is not None:
        return launch.completed(options)
    if options["plugins"] is None and "SLURM_NTASKS" in os.environ:
        # A batch script without `srun`: Lightning would assume that all tasks of the job were
        # started, wait for them, and requeue the job.
        return {**options, "plugins": [LightningEnvironment()]}
    return dict(options)


def limited(strategy: Any, minutes: float) -> Strategy:
    """The strategy with a time limit, in minutes, on communication between its processes.

    Without it, processes wait for one that hangs or is suspended for as long as PyTorch's default
    limit. If a process is killed, the others end in any case.

    Raises:
        ConfigError: The limit is not above 0, or the strategy is not a ddp strategy.
    """
    if not minutes > 0:
        raise ConfigError(f"rank_timeout_minutes={minutes}: give a number of minutes above 0.")
    if not (
        isinstance(strategy, str)
        and strategy.startswith("ddp")
        and strategy in StrategyRegistry.available_strategies()
    ):
        raise ConfigError(
            f"rank_timeout_minutes={minutes} with trainer.strategy={strategy}: it applies only to "
            "the ddp strategies of several processes; set trainer.strategy=ddp, or leave it out."
        )
    entry = StrategyRegistry[strategy]
    with_timeout: Strategy = entry["strategy"](
        **entry["init_params"], timeout=timedelta(minutes=minutes)
    )
    return with_timeout


def _slurm_number(kind: str) -> int:
    name = f"SLURM_{kind}"
    value = os.environ.get(name)
    if value is None or not value.isdecimal() or int(value) < 1:
        raise ConfigError(
            f"SLURM_STEP_ID is set, as in a process that srun started, but {name} is "
            f"{value!r}; start with `srun --ntasks=N --nodes=M`, or unset SLURM_STEP_ID."
        )
    return int(value)

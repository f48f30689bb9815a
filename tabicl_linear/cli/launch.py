"""Runs of several processes: how torchrun and SLURM start them, and how the loss of one is told."""

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
"""Messages of gloo and NCCL when a process does not answer."""


def is_first_process() -> bool:
    """Whether this is the process that speaks and writes for all of its run."""
    return bool(rank_zero_only.rank == 0)  # type: ignore[attr-defined]


class LostProcess(RuntimeError):
    """One of several processes has ended, or does not answer.

    Args:
        error: What the library that connects them says.
        checkpoint: Of the run; None if there is none yet.
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
        """Whether an error among several processes means that one of them is lost."""
        return re.search(LOST, str(error), re.IGNORECASE) is not None


def error_of_forked(
    error: ProcessExitedException | ProcessRaisedException, checkpoint: Path | None
) -> Exception | None:
    """Why a forked process ended, of which the first process has the text alone.

    The text ends with the line of the error, after a traceback, or is a line about a signal. The
    result is an error that ends a run in one line, such as a `LostProcess`, which names the
    checkpoint of the run; None for any other error.
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
    """Processes that torchrun or `srun` has started.

    Attributes:
        per_node: Processes on each node, one for each device.
        nodes: Nodes.
        by_slurm: Whether it was `srun`.
    """

    per_node: int
    nodes: int
    by_slurm: bool

    @classmethod
    def detect(cls) -> "Launch | None":
        """The launch that started this process; None if it is alone or starts the others itself.

        Raises:
            ConfigError: Nodes have different numbers of processes, or variables are missing.
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
        """The trainer's options, with those at their defaults filled in."""
        complete = dict(options)
        if complete["devices"] == "auto":
            complete["devices"] = self.per_node
        if complete["num_nodes"] == 1:
            complete["num_nodes"] = self.nodes
        if complete["strategy"] == "auto" and self.per_node * self.nodes > 1:
            complete["strategy"] = "ddp"
        if self.by_slurm and complete["plugins"] is None:
            # Our own checkpoint is taken at the end of an accumulation window, and a resume looks
            # for it; neither holds for Lightning's. The batch script requeues (docs/cluster.md).
            complete["plugins"] = [SLURMEnvironment(auto_requeue=False)]
        return complete


def completed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's options, with those at their defaults as this process was started.

    Raises:
        ConfigError: Nodes have different numbers of processes, or variables are missing.
    """
    launch = Launch.detect()
    if launch is not None:
        return launch.completed(options)
    if options["plugins"] is None and "SLURM_NTASKS" in os.environ:
        # A batch script without `srun`: Lightning would take all tasks of the job for started and
        # wait for the others, and would requeue the job.
        return {**options, "plugins": [LightningEnvironment()]}
    return dict(options)


def limited(strategy: Any, minutes: float) -> Strategy:
    """The strategy with a time limit on communication between its processes.

    If a process is killed, the others end too; one that hangs, or is stopped, would make them wait
    for as long as PyTorch does.

    Raises:
        ConfigError: The strategy has no such limit, or only one process.
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

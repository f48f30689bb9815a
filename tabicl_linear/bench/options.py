"""What all subcommands share."""

from dataclasses import dataclass
from pathlib import Path

import torch

from tabicl_linear.bench.ceilings import COPY_BYTES


@dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
        device: Where.
        rounds: Rounds that count; every contestant runs once in each.
        budget: Seconds after which a contestant sits out, once it has three rounds.
        quick: Small shapes, for seconds.
        output: Folder of the files.
        command: The command line, for the report.
    """

    device: torch.device
    rounds: int = 15
    budget: float = 30.0
    quick: bool = False
    output: Path = Path("runs/bench")
    command: str = "tabicl-linear bench"

    @property
    def copy_bytes(self) -> int:
        """Size of the copy that measures memory bandwidth."""
        return 2**22 if self.quick else COPY_BYTES

"""Random weights for the architectures of others, as their packages read checkpoints."""

from collections.abc import Callable
from pathlib import Path

import torch


def tabicl(path: Path) -> None:
    """TabICL v2 at the sizes that its package has as defaults."""
    from tabicl._model.tabicl import TabICL

    torch.manual_seed(0)
    config = {"max_classes": 10}
    torch.save({"config": config, "state_dict": TabICL(**config).state_dict()}, path)


def tabpfn_2_5(path: Path) -> None:
    """TabPFN v2.5 at the sizes that its package has as defaults."""
    from dataclasses import asdict

    from tabpfn.architectures import ARCHITECTURES

    torch.manual_seed(0)
    architecture = ARCHITECTURES["tabpfn_v2_5"]
    config, _ = architecture.parse_config({"max_num_classes": 10})
    torch.save(
        {
            "architecture_name": "tabpfn_v2_5",
            "config": asdict(config),
            "state_dict": architecture.get_architecture(config).state_dict(),
        },
        path,
    )


ARCHITECTURES: dict[str, Callable[[Path], None]] = {"TabICL v2": tabicl, "TabPFN v2.5": tabpfn_2_5}
"""What writes a checkpoint of each."""

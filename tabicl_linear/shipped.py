"""Weights that are part of the package, by name."""

import os
from pathlib import Path

DEFAULT = "default"
FOLDER = Path(__file__).parent / "checkpoints"
WEIGHTS = {name: FOLDER / f"{name}.safetensors" for name in (DEFAULT, "streaming")}
"""File of each name; it does not exist if the package was built without weights."""


def checkpoint_path(named: str | os.PathLike[str]) -> Path:
    """The file of weights in the package if `named` is their name; otherwise `named` as a path."""
    return WEIGHTS[named] if isinstance(named, str) and named in WEIGHTS else Path(named)

"""Weights that come with the package, by name."""

import os
from pathlib import Path

DEFAULT = "default"
WEIGHTS = {DEFAULT: Path(__file__).parent / "checkpoints" / "default.safetensors"}
"""File of each name. It is missing where a package was built without weights."""


def checkpoint_path(named: str | os.PathLike[str]) -> Path:
    """The file of shipped weights, given by their name, or any other path as it is."""
    return WEIGHTS[named] if isinstance(named, str) and named in WEIGHTS else Path(named)

"""Weights that come with the package, by name."""

import os
from pathlib import Path

DEFAULT = "default"
FOLDER = Path(__file__).parent / "checkpoints"
WEIGHTS = {name: FOLDER / f"{name}.safetensors" for name in (DEFAULT, "streaming")}
"""File of each name. It is missing where a package was built without weights."""


def checkpoint_path(named: str | os.PathLike[str]) -> Path:
    """The file of shipped weights, given by their name, or any other path as it is."""
    return WEIGHTS[named] if isinstance(named, str) and named in WEIGHTS else Path(named)

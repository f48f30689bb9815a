"""Notebooks as programs: their cells from top to bottom, in a process of its own."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from forked import Running


def code_of(path: Path) -> str:
    """The cells that hold code, which the file keeps without what they have printed."""
    cells = json.loads(path.read_text())["cells"]
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells)
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def printed(path: Path, forked: Callable[..., Running], *environment: str) -> list[str]:
    """What a notebook prints, run in its folder with variables such as `TINY=1`."""
    run = forked(_run, path, *environment)
    assert run.wait() == 0, "\n".join(run.said())
    return run.said()


def _run(arguments: list[str]) -> None:
    path, *environment = arguments
    os.environ |= dict(variable.split("=", 1) for variable in environment)
    os.chdir(Path(path).parent)
    warnings.simplefilter("default")  # a warning is printed, and no error as in a test
    exec(compile(code_of(Path(path)), path, "exec"), {"__name__": "__main__"})

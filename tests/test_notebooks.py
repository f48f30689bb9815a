"""The notebooks of the documentation run from top to bottom."""

from pathlib import Path

import pytest
from forked import forked
from notebooks import printed

__all__ = ["forked"]

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
LAST = {"table": "300 rows, log-loss 0.", "mixer": "64 0."}
"""What the last line holds that a notebook prints."""


def test_every_notebook_is_run():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(LAST)


@pytest.mark.parametrize("name", LAST)
def test_every_cell_runs(name, forked, tmp_path):
    lines = printed(FOLDER / f"{name}.ipynb", forked, "NOTEBOOK_TINY=1", f"TMPDIR={tmp_path}")
    assert LAST[name] in lines[-1], lines

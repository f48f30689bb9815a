"""The notebooks of the documentation run from top to bottom."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
LAST = {"table": "300 rows, log-loss 0.", "mixer": "64 0."}
"""What the last line holds that a notebook prints."""


def test_every_notebook_is_run():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(LAST)


@pytest.mark.parametrize("name", LAST)
def test_every_cell_runs(name, tmp_path):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    environment = os.environ | {"NOTEBOOK_TINY": "1", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONPATH": str(FOLDER.parents[1]), "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", "\n\n".join(code)],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert LAST[name] in ran.stdout.splitlines()[-1], ran.stdout

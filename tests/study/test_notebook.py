"""The notebook of the minimal failure runs from top to bottom."""

import json
import os
import subprocess
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "experiments" / "study" / "minimal_length_failure.ipynb"


def test_every_cell_runs_at_a_tiny_size():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    environment = os.environ | {"STUDY_TINY": "1", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(NOTEBOOK.parents[2])
    ran = subprocess.run(
        [sys.executable, "-c", "\n\n".join(code)],
        cwd=NOTEBOOK.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    names = [line.split()[0].rstrip(":") for line in ran.stdout.splitlines()]
    assert names == 2 * ["linear_causal", "linear_noncausal"]
    assert "nan" not in ran.stdout

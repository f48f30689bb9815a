"""The dense parts through torch.compile compute what they compute without."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_compiled_dense_parts_change_nothing():
    done = subprocess.run(
        [sys.executable, TESTS / "backends" / "trace_dense.py"],
        env=os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all the same\n"

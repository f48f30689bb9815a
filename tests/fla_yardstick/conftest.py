"""Puts the interpreter in place before fla is imported, and tells the errors that were measured."""

from collections import defaultdict

import interpreter
import pytest
import torch
from tolerances import RMS, assert_close, relative_rms

interpreter.install()
WORST = pytest.StashKey[dict[tuple[str, str], float]]()


def pytest_configure(config):
    config.stash[WORST] = defaultdict(float)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def agree(request):
    """Asserts that two sets of float32 results agree, and keeps the worst error of each row."""
    worst = request.config.stash[WORST]

    def check(row, ours, theirs):
        assert ours.keys() == theirs.keys()
        for name, actual in ours.items():
            pair = actual, theirs[name]
            if not actual.any():
                # Exactly zero, as the gradient of the gate of one token after an empty state. The
                # library's rounding is all that is left of it: then the error is absolute.
                pair = pair[::-1]
            column = name if name in {"output", "state"} else "gradients"
            worst[row, column] = max(worst[row, column], relative_rms(*pair))
            assert_close(*pair, RMS[torch.float32], f"{row}, {name}")

    return check


def pytest_terminal_summary(terminalreporter, config):
    worst = config.stash[WORST]
    if not worst:
        return
    columns = ["output", "state", "gradients"]
    terminalreporter.section("worst relative RMS error, ours against flash-linear-attention")
    terminalreporter.write_line(f"{'':44}" + "".join(f"{column:>12}" for column in columns))
    for row in dict.fromkeys(row for row, _ in worst):
        cells = [worst.get((row, column)) for column in columns]
        text = "".join(f"{'-' if cell is None else format(cell, '.0e'):>12}" for cell in cells)
        terminalreporter.write_line(f"{row:44}{text}")

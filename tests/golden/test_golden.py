"""Every mixer and readout, and the first steps of every config, give the numbers that are stored.

`golden/make.py` has the line that makes them anew.
"""

import json

import numpy as np
import pytest
import torch
from golden.make import LOGITS, ROOTS, TRAINING, cases, initial, key, logits, losses
from tolerances import RMS, assert_close

STORED = np.load(LOGITS)
RUNS = json.loads(TRAINING.read_text())
TOLERANCE = RMS[torch.float64]


def test_all_cases_are_stored():
    assert {key(*case) for case in cases()} == set(STORED.files)
    assert set(ROOTS) == set(RUNS)


@pytest.mark.parametrize("case", cases(), ids=lambda case: key(*case))
def test_logits(case):
    assert_close(logits(*case), torch.from_numpy(STORED[key(*case)]), TOLERANCE)


@pytest.mark.parametrize("config", ROOTS)
def test_initial_parameters(config):
    stored, result = RUNS[config]["initial"], initial(config)
    assert {name: value[:-1] for name, value in result.items()} == {
        name: value[:-1] for name, value in stored.items()
    }
    for name, value in result.items():
        assert value[-1] == pytest.approx(stored[name][-1], rel=1e-6), name


@pytest.mark.parametrize("config", ROOTS)
def test_losses_of_the_first_steps(config):
    result = torch.tensor(losses(config), dtype=torch.float64)
    assert_close(result, torch.tensor(RUNS[config]["losses"], dtype=torch.float64), TOLERANCE)

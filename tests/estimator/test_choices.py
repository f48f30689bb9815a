"""What evidence decides, by hand; fits that use it are in `test_long_context.py`."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.choices import (
    MAX_BLOCKS,
    PRIOR_DEVIATION,
    TEMPERATURES,
    better_context,
    calibrated_temperature,
    check_blocks,
)


def test_the_standard_error_is_that_of_the_mean_difference():
    full, blocks = np.random.default_rng(0).gamma(2, size=(2, 12))
    result = better_context(full, blocks, 3)
    assert result.standard_error == pytest.approx(stats.sem(full - blocks))
    assert result.full_log_loss == pytest.approx(full.mean())
    assert result.blocks_log_loss == pytest.approx(blocks.mean())
    assert result.held_out_rows == 12


@pytest.mark.parametrize(("spread", "choice"), [(0.9, "blocks"), (1.1, "full")])
def test_blocks_are_chosen_from_two_standard_errors_on(spread, choice):
    """Gains are 1 and 1 +- something: their mean is 1, its standard error half the spread."""
    something = spread / 2 * np.sqrt(3)  # of 4 rows: sem = something * sqrt(2 / 3) / 2
    something *= np.sqrt(2)
    gains = 1 + something * np.array([-1, 1, 0, 0])
    result = better_context(3 + gains, np.full(4, 3.0), 3)
    assert result.standard_error == pytest.approx(spread / 2)
    assert (result.choice, result.num_blocks) == (choice, 3 if choice == "blocks" else 1)


def test_as_many_blocks_as_allowed_and_no_more():
    check_blocks(MAX_BLOCKS, 1000, 32)
    with pytest.raises(DataError, match=f"at most {MAX_BLOCKS * 32} rows"):
        check_blocks(MAX_BLOCKS + 1, 1100, 32)


@pytest.mark.parametrize("rows", [20, 2000])
def test_a_calibrated_temperature_is_the_most_probable_one(rows):
    """Against a grid; the prior weighs as much as half a row at one deviation."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(1, rows, 3))
    labels = np.array([rng.choice(3, p=np.exp(row)) for row in log_softmax(logits[0] / 2, -1)])
    result = calibrated_temperature(logits, labels, fixed=0.8, average_logits=True)
    ends = np.log(TEMPERATURES)
    for _ in range(2):  # around the best of the first, which is the only minimum
        grid = np.linspace(*ends, 201)
        logs = log_softmax(logits[0][None] / np.exp(grid)[:, None, None], -1)
        misfit = -logs[:, np.arange(rows), labels].sum(1)
        prior = ((grid - np.log(0.8)) / PRIOR_DEVIATION) ** 2 / 2
        best = (misfit + prior).argmin()
        ends = grid[best - 1], grid[best + 1]
    assert result == pytest.approx(np.exp(grid[best]), rel=2e-3)

"""Row numbers follow the distributions that they are named after."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.rows import (
    FixedRows,
    LogUniformRows,
    ShiftedLogNormalRows,
    UniformRows,
)

DRAWS = 20_000
DISTRIBUTIONS = [
    FixedRows(1000),
    UniformRows(200, 8000),
    LogUniformRows(200, 8000),
    LogUniformRows(200, 64_000),
    ShiftedLogNormalRows(),
    ShiftedLogNormalRows(50, 400, mean_rows=300.0, sigma=0.7),
]


def draw(rows, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([rows.sample(rng) for _ in range(DRAWS)])


def cumulative(rows):
    """(k, P(N <= k)) for every k within the bounds, from what the distribution says it is."""
    low, high = rows.bounds
    k = np.arange(low, high + 1)
    match rows:
        case FixedRows():
            before = np.ones(len(k))
        case UniformRows():
            before = (k - low + 1) / (high - low + 1)
        case LogUniformRows():
            before = np.log((k + 0.5) / low) / np.log(high / low)
        case ShiftedLogNormalRows():
            before = stats.lognorm.cdf(k + 0.5 - low, rows.sigma, scale=np.exp(rows.mu))
    return k, np.append(before[:-1], 1.0)


def mean(rows):
    k, below = cumulative(rows)
    return k @ np.diff(below, prepend=0)


@pytest.mark.parametrize("rows", DISTRIBUTIONS, ids=str)
def test_draws_follow_the_law_within_the_bounds(rows):
    drawn = draw(rows)
    low, high = rows.bounds
    assert low <= drawn.min() <= drawn.max() <= high
    k, below = cumulative(rows)
    observed = np.searchsorted(np.sort(drawn), k, side="right") / DRAWS
    # 1.63 / sqrt(n) is the 1 % point of the Kolmogorov-Smirnov distance; less for discrete laws.
    assert abs(observed - below).max() < 1.63 / np.sqrt(DRAWS)


@pytest.mark.parametrize("rows", DISTRIBUTIONS, ids=str)
def test_draws_depend_on_the_generator_alone(rows):
    assert [rows.sample(np.random.default_rng(3)) for _ in range(3)] == [draw(rows, seed=3)[0]] * 3


@pytest.mark.parametrize("rows", [UniformRows(3, 5), LogUniformRows(3, 5)], ids=str)
def test_both_bounds_are_drawn(rows):
    assert set(draw(rows)) == {3, 4, 5}


def test_a_cut_off_is_drawn():
    assert draw(ShiftedLogNormalRows(50, 400, mean_rows=300.0, sigma=0.7)).max() == 400


@pytest.mark.parametrize(("most", "expected"), [(8000, 2114), (16_000, 3606), (64_000, 11_060)])
def test_the_mean_of_log_uniform_rows(most, expected):
    rows = LogUniformRows(200, most)
    assert (most - 200) / np.log(most / 200) == pytest.approx(expected, abs=0.6)
    assert mean(rows) == pytest.approx(expected, abs=0.6)
    drawn = draw(rows)
    assert abs(drawn.mean() - expected) < 4 * drawn.std() / np.sqrt(DRAWS)


def test_the_compute_matched_mean_is_1138_rows():
    rows = ShiftedLogNormalRows()
    assert (rows.bounds, rows.sigma) == ((200, 64_000), 1.6)
    assert mean(rows) == pytest.approx(1138, abs=0.01)
    drawn = draw(rows)
    assert abs(drawn.mean() - 1138) < 4 * drawn.std() / np.sqrt(DRAWS)


@settings(max_examples=40, deadline=None)
@given(
    low=st.integers(1, 1000),
    width=st.integers(2, 5000),
    share=st.floats(0.01, 0.99),
    sigma=st.floats(0.05, 5),
)
def test_any_mean_between_the_bounds_is_met(low, width, share, sigma):
    """E[min(X, c)] is the integral of P(X > x) up to c; here by quantiles of X."""
    rows = ShiftedLogNormalRows(low, low + width, low + share * width, sigma)
    uniform = (np.arange(20_000) + 0.5) / 20_000
    above = np.exp(np.minimum(rows.mu + sigma * stats.norm.ppf(uniform), np.log(width)))
    assert low + above.mean() == pytest.approx(rows.mean_rows, abs=width / 20_000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedRows(0), "num_rows=0"),
        (lambda: UniformRows(0, 5), "min_rows=0, max_rows=5"),
        (lambda: UniformRows(6, 5), "min_rows=6, max_rows=5"),
        (lambda: LogUniformRows(0, 5), "min_rows=0, max_rows=5"),
        (lambda: LogUniformRows(6, 5), "min_rows=6, max_rows=5"),
        (lambda: ShiftedLogNormalRows(6, 5), "min_rows=6, max_rows=5"),
        (lambda: ShiftedLogNormalRows(200, 1000), "mean_rows=1138.0"),
        (lambda: ShiftedLogNormalRows(1138, 2000), "mean_rows=1138.0"),
        (lambda: ShiftedLogNormalRows(mean_rows=float("nan")), "mean_rows=nan"),
        (lambda: ShiftedLogNormalRows(sigma=0.0), "sigma=0.0"),
        (lambda: ShiftedLogNormalRows(sigma=float("inf")), "sigma=inf"),
    ],
)
def test_impossible_distributions_are_refused_at_construction(make, message):
    with pytest.raises(ConfigError, match=message) as error:
        make()
    assert "\n" not in str(error.value)

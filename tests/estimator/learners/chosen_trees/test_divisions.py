"""Which rows grow trees and which solve them."""

import numpy as np
import pytest

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.learners.chosen_trees import divisions as module
from tabicl_linear.estimator.learners.chosen_trees.divisions import divisions, scheme
from tabicl_linear.estimator.plan import PRESETS

LABELS = np.array([0] * 11 + [1] * 5 + [2])


def test_two_divisions_of_a_round_exchange_halves():
    one, other = divisions(LABELS, 1, seed=0)
    np.testing.assert_array_equal(one.growing, other.solving)
    np.testing.assert_array_equal(one.solving, other.growing)
    counts = [np.bincount(LABELS[part.growing], minlength=3) for part in (one, other)]
    assert np.abs(counts[0] - counts[1]).max() <= 1


def test_rounds_and_seeds_differ_and_repeat():
    parts = divisions(LABELS, 2, seed=0)
    again = divisions(LABELS, 2, seed=0)
    for one, other in zip(parts, again, strict=True):
        np.testing.assert_array_equal(one.growing, other.growing)
    assert not np.array_equal(parts[0].growing, parts[2].growing)
    assert not np.array_equal(parts[0].growing, divisions(LABELS, 1, seed=1)[0].growing)


@pytest.mark.parametrize(("rows", "growing"), [(30, 10), (56, 14), (100, 20)])
def test_of_a_long_table_a_quarter_of_first_rows_grows_and_all_others_are_solved(
    monkeypatch, rows, growing
):
    monkeypatch.setattr(module, "LEAST_GROWING", 10)
    monkeypatch.setattr(module, "MOST_GROWING", 20)
    labels = np.random.default_rng(0).integers(2, size=rows)
    for part in divisions(labels, 2, seed=0):
        assert len(part.growing) == growing
        assert part.growing.max() < 3 * growing
        assert np.array_equal(np.union1d(part.growing, part.solving), np.arange(rows))
        assert len(part.solving) == rows - growing


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (49, (1, 0, 0)),
        (50, (2, 3, 1)),
        (2000, (2, 3, 1)),
        (2001, (2, 2, 2)),
        (4000, (2, 2, 2)),
        (4001, (1, 2, 2)),
        (5999, (1, 2, 2)),
        (6000, (1, 2, 1)),
    ],
)
def test_the_scheme_follows_the_number_of_rows(rows, expected):
    assert scheme(rows) == expected


def test_the_classifier_says_how_many_members_it_has():
    text = " ".join(str(TabICLLinearClassifier.__doc__).split())
    few, most = module.FEWEST_ROWS, module.ROWS_OF_TWO_MEMBERS
    assert f"With trees it takes two for {few} to {most:,} rows" in text
    default, paper = PRESETS["default"], PRESETS["paper"]
    assert f"None takes {default.n_estimators}, or {paper.n_estimators} with" in text
    assert f"None takes {default.softmax_temperature}, or {paper.softmax_temperature} with" in text

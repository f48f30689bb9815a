"""How much columns tell, and how likely that is by chance."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from tabicl_linear.estimator.columns.information import information, p_value, p_value_of_rare


def test_the_chance_is_that_of_the_likelihood_ratio_test():
    rng = np.random.default_rng(0)
    places, classes = rng.integers(4, size=200), rng.integers(3, size=200)
    table = np.zeros((4, 3))
    np.add.at(table, (places, classes), 1)
    expected = chi2_contingency(table, lambda_="log-likelihood", correction=False).pvalue
    chance = p_value(information(places, classes), places, classes)
    assert chance == pytest.approx(expected, rel=1e-9)


def test_a_constant_says_nothing():
    classes = np.array([0, 1, 1])
    assert p_value(0.0, np.zeros(3, dtype=np.int64), classes) == 1.0
    assert p_value(0.0, classes, np.zeros(3, dtype=np.int64)) == 1.0


def test_the_chance_of_rare_places_is_that_over_all_orders_of_the_classes():
    rng = np.random.default_rng(1)
    places = rng.integers(40, size=100)
    chances = []
    for _ in range(500):
        classes = (rng.random(100) < 0.1).astype(np.int64)
        chances.append(p_value_of_rare(places, classes))
    shares = [float(np.mean(np.array(chances) < level)) for level in (0.05, 0.2, 0.5)]
    assert shares == pytest.approx([0.05, 0.2, 0.5], abs=0.03)


def test_places_that_are_all_alike_or_all_different_say_nothing():
    classes = np.array([0, 1, 1, 0, 1])
    for places in (np.zeros(5, dtype=np.int64), np.arange(5)):
        assert p_value_of_rare(places, classes) == 1.0
    assert p_value_of_rare(classes, np.zeros(5, dtype=np.int64)) == 1.0


def test_chance_of_a_few_rows_is_a_probability():
    """Of two or three, or where each order says as much, there is no variance."""
    rng = np.random.default_rng(0)
    for _ in range(500):
        places, classes = (rng.integers(rng.integers(1, 6), size=rng.integers(1, 9)) for _ in "ab")
        rows = min(len(places), len(classes))
        assert 0 <= p_value_of_rare(places[:rows], classes[:rows]) <= 1

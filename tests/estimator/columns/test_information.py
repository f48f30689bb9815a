"""How much columns tell, and how likely that is by chance."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from tabicl_linear.estimator.columns.information import information, p_value


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

"""Factors for the probabilities of classes; weights of rows are refused."""

import datetime

import numpy as np
import pandas as pd
import pytest

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.class_weights import class_weights


def test_balanced_factors_are_in_inverse_proportion_to_frequency():
    factors = class_weights("balanced", np.array(["a", "b"]), np.array([30, 10]))
    np.testing.assert_allclose(factors, [40 / 60, 40 / 20])
    np.testing.assert_allclose(factors @ [30, 10] / 40, 1)


def test_a_class_that_has_no_row_yet_counts_as_one_row():
    factors = class_weights("balanced", np.array(["a", "b", "c"]), np.array([30, 10, 0]))
    np.testing.assert_allclose(factors, [40 / 90, 40 / 30, 40 / 3])


@pytest.mark.parametrize("unit", ["ns", "us", "D"])
@pytest.mark.parametrize("of_user", [np.datetime64, pd.Timestamp, datetime.datetime])
def test_days_are_labels_in_any_unit(unit, of_user):
    days = np.array(["2020-01-01", "2021-01-01"], dtype=f"datetime64[{unit}]")
    day = of_user(2021, 1, 1) if of_user is datetime.datetime else of_user("2021-01-01")
    assert class_weights({day: 3}, days, np.array([1, 1])).tolist() == [1, 3]
    with pytest.raises(ConfigError, match=r"the classes are .*2020-01-01"):
        class_weights({"x": 3}, days, np.array([1, 1]))


@pytest.fixture(scope="module")
def fitted(checkpoint):
    table = np.random.default_rng(0).normal(size=(80, 2))
    labels = np.where(table[:, 0] > 1, "rare", "common")
    return table, TabICLLinearClassifier(checkpoint, n_estimators=2).fit(table, labels)


@pytest.mark.parametrize("weight", ["balanced", {"rare": 5.0}, {"rare": 5.0, "common": 2}])
def test_probabilities_are_multiplied_and_sum_to_one(fitted, weight):
    table, classifier = fitted
    plain = classifier.set_params(class_weight=None).predict_proba(table)
    factors = class_weights(weight, classifier.classes_, classifier.class_count_)
    expected = plain * factors / (plain * factors).sum(1, keepdims=True)
    weighted = classifier.set_params(class_weight=weight)
    np.testing.assert_allclose(weighted.predict_proba(table), expected, rtol=1e-9)
    np.testing.assert_allclose(
        weighted.predict_log_proba(table), np.log(expected), rtol=1e-7, atol=1e-12
    )
    assert (weighted.predict_proba(table)[:, 1] >= plain[:, 1]).all()


def test_weights_of_rows_are_refused_with_the_reason(fitted):
    table, classifier = fitted
    labels = classifier.predict(table)
    expected = classifier.predict_proba(table)
    with pytest.raises(ConfigError, match=r"not pretrained with weights.*set class_weight"):
        classifier.fit(table, labels, sample_weight=np.ones(len(table)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'epochs'"):
        classifier.fit(table, labels, epochs=3)
    np.testing.assert_array_equal(classifier.predict_proba(table), expected)

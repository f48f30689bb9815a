"""The network beside trees on tables of few rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
from estimator.learners.chosen_trees.tables import ruled_table
from scipy.special import log_softmax
from tolerances import ROUNDING

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def table():
    rows, labels = ruled_table(500)
    return pd.DataFrame(rows, columns=list("abcde")), np.array(["no", "yes", "perhaps"])[labels]


@pytest.fixture(scope="module")
def fitted(few_trees, table):
    x, y = table
    return TabICLLinearClassifier(class_weight="balanced").fit(x[:150], y[:150])


def test_logits_are_mixed_by_the_weight_of_so_many_rows(fitted, table):
    x, y = table
    alone = [
        TabICLLinearClassifier(class_weight="balanced", **arguments).fit(x[:150], y[:150])
        for arguments in ({"trees": True}, {"trees": False})
    ]
    trees, network = (each.predict_log_proba(x[150:]) for each in alone)
    weight = fitted.fitted_.companion.weight
    assert weight == 0.4
    # Weights of classes are in both, and in their mixture as often.
    expected = log_softmax((1 - weight) * trees + weight * network, axis=1)
    logs = fitted.predict_log_proba(x[150:])
    np.testing.assert_allclose(logs, expected, atol=ROUNDING)
    assert np.abs(logs - trees).max() > 0.01
    assert np.abs(logs - network).max() > 0.01
    assert fitted.state_nbytes_ == sum(each.state_nbytes_ for each in alone)


def test_files_and_pickles_predict_the_same(fitted, table, tmp_path):
    x, _ = table
    expected = fitted.predict_proba(x[150:])
    fitted.save(tmp_path / "a.state")
    loaded = TabICLLinearClassifier.load(tmp_path / "a.state")
    np.testing.assert_array_equal(loaded.predict_proba(x[150:]), expected)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(x[150:]), expected)


@pytest.mark.parametrize(
    ("counts", "weight"),
    [
        ([24, 25], None),
        ([25, 25], 0.4),
        ([70, 65, 65], 0.4),
        ([68, 67, 66], 0.2),
        ([200, 100, 100], 0.2),
        ([201, 201], None),
        ([300, 60, 40], 0.4),  # 200 rows, were the first class as large as the others together
        ([300, 61, 40], 0.2),
        ([800, 120, 80], 0.2),
        ([799, 121, 80], None),
        ([994, 6], 0.4),
        ([995, 6], None),
        ([48, 1], None),
    ],
)
def test_few_rows_have_one_and_many_have_none(counts, weight):
    companion = TabICLLinearClassifier()._learners().companion(np.array(counts))
    assert (None if companion is None else companion.weight) == weight


@pytest.mark.parametrize("arguments", [{"trees": True}, {"trees": False}, {"ensemble": "paper"}])
def test_arguments_that_name_a_learner_get_that_one_alone(arguments, table):
    x, y = table
    fitted = TabICLLinearClassifier(n_estimators=1, **arguments).fit(x[:60], y[:60])
    assert fitted.fitted_.companion is None


def test_a_closed_form_and_rows_in_pieces_have_none(table):
    x, y = table
    assert RandomFeatureRidge().fit(x[:60], y[:60]).fitted_.companion is None
    pieces = TabICLLinearClassifier().partial_fit(x[:60], y[:60]).partial_fit(x[60:90], y[60:90])
    assert pieces.fitted_.companion is None


def test_given_members_and_a_calibrated_temperature_are_those_of_both(table):
    x, y = table
    classifier = TabICLLinearClassifier(n_estimators=3, softmax_temperature="auto", random_state=0)
    fitted = classifier.fit(x[:90], y[:90]).fitted_
    assert len(fitted.members.views) == len(fitted.companion.members.views) == 3
    assert fitted.companion.temperature not in (0.9, 1.0, fitted.temperature)
    np.testing.assert_allclose(classifier.predict_proba(x[90:]).sum(1), 1)

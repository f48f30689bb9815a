"""Trees chosen on the table, as an argument of the classifiers."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from estimator.learners.chosen_trees.tables import ruled_table

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.learners.chosen_trees import growth
from tabicl_linear.estimator.learners.chosen_trees.learner import ChosenTrees
from tabicl_linear.estimator.rows import labelled
from tabicl_linear.model import InContextModel


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "NUM_TREES", 8)
        yield


@pytest.fixture(scope="module")
def table():
    rows, labels = ruled_table(240)
    frame = pd.DataFrame(rows, columns=list("abcde"))
    frame.loc[::7, "b"] = np.nan
    frame["f"] = np.where(frame["a"] > 1, "high", "low")
    return frame, np.array(["no", "yes", "perhaps"])[labels]


@pytest.fixture(scope="module")
def fitted(few_trees, table):
    x, y = table
    return TabICLLinearClassifier().fit(x[:160], y[:160])


def test_the_default_takes_trees(fitted, table):
    x, y = table
    assert isinstance(fitted.ensemble_.model, ChosenTrees)
    assert len(fitted.ensemble_.views) == 1
    assert fitted.score(x[160:], y[160:]) > 0.75


@pytest.mark.parametrize("make", [TabICLLinearClassifier, RandomFeatureRidge])
def test_files_and_pickles_predict_the_same(make, table, tmp_path):
    x, y = table
    classifier = make(trees=True).fit(x[:160], y[:160])
    expected = classifier.predict_proba(x[160:])
    classifier.save(tmp_path / "a.state")
    loaded = make.load(tmp_path / "a.state")
    np.testing.assert_array_equal(loaded.predict_proba(x[160:]), expected)
    assert loaded.state_nbytes_ == classifier.state_nbytes_
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(x[160:]), expected)


def test_rows_are_predicted_apart(fitted, table):
    x, _ = table
    order = np.random.default_rng(0).permutation(80)
    whole = fitted.predict_proba(x[160:])
    np.testing.assert_allclose(fitted.predict_proba(x[160:].iloc[order]), whole[order], atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(x[160:161]), whole[:1], atol=1e-6)


def test_rows_in_pieces_are_those_of_the_table(table, fitted, monkeypatch):
    x, y = table
    pieces = [(x[i : i + 40], y[i : i + 40]) for i in range(0, 160, 40)]
    of_pieces = TabICLLinearClassifier().fit(iter(pieces))
    np.testing.assert_array_equal(of_pieces.predict_proba(x[160:]), fitted.predict_proba(x[160:]))
    monkeypatch.setattr(labelled, "FIRST_ROWS", 80)
    spilled = TabICLLinearClassifier().fit(iter(pieces))
    assert isinstance(spilled.ensemble_.model, ChosenTrees)
    assert spilled.score(x[160:], y[160:]) > 0.7


def test_few_rows_are_read_by_the_model(table):
    x, y = table
    few = TabICLLinearClassifier(n_estimators=1).fit(x[:49], y[:49])
    assert isinstance(few.ensemble_.model, InContextModel)
    more = TabICLLinearClassifier().fit(x[:50], y[:50])
    assert isinstance(more.ensemble_.model, ChosenTrees)


@pytest.mark.parametrize(
    "arguments", [{"trees": False}, {"ensemble": "paper"}, {"long_context": "blocks"}]
)
def test_what_asks_for_the_model_gets_it(arguments, table):
    x, y = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = TabICLLinearClassifier(n_estimators=1, **arguments).fit(x[:60], y[:60])
    assert isinstance(classifier.ensemble_.model, InContextModel)


def test_many_classes_are_predicted_at_once():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(15), 20)
    rows = rng.normal(size=(15, 6))[labels] * 2 + rng.normal(size=(300, 6))
    classifier = TabICLLinearClassifier().fit(rows[::2], labels[::2])
    assert isinstance(classifier.ensemble_.model, ChosenTrees)
    assert classifier.score(rows[1::2], labels[1::2]) > 0.6


def test_weights_of_classes_count(fitted, table):
    x, _ = table
    weighted = pickle.loads(pickle.dumps(fitted))
    weighted.set_params(class_weight={"no": 5.0, "yes": 1.0, "perhaps": 1.0})
    plain, moved = (each.predict_proba(x[160:])[:, 0] for each in (fitted, weighted))
    np.testing.assert_allclose(moved, 5 * plain / (1 + 4 * plain), rtol=1e-6)


def test_wide_tables_take_members_until_all_columns_are_seen():
    rows, labels = ruled_table(80)
    wide = np.concatenate([rows, np.random.default_rng(0).normal(size=(80, 20))], axis=1)
    with pytest.warns(UserWarning, match="has 25 usable columns and the model takes 10"):
        classifier = RandomFeatureRidge(max_columns=10).fit(wide, labels)
    assert len(classifier.ensemble_.views) == 3
    assert len({column for view in classifier.ensemble_.views for column in view.columns}) == 25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trees": "yes"}, "trees='yes': give 'auto', True or False"),
        ({"trees": True, "refine": True}, "trees=True predicts without the model"),
        ({"trees": True, "long_context": "auto"}, "trees=True predicts without the model"),
    ],
)
def test_arguments_that_do_not_suit_are_refused(arguments, message, table):
    x, y = table
    with pytest.raises(ConfigError, match=message):
        TabICLLinearClassifier(**arguments).fit(x, y)


def test_rows_cannot_be_added_to_trees(table):
    x, y = table
    classifier = TabICLLinearClassifier("streaming", trees=True)
    assert not hasattr(classifier, "partial_fit")
    with pytest.raises(AttributeError) as error:
        classifier.partial_fit(x, y)
    assert "trees=True needs all rows at once" in str(error.value.__cause__)
    # A file of rows is read as a whole.
    fitted = classifier.fit(iter([(x[:100], y[:100]), (x[100:], y[100:])]))
    assert isinstance(fitted.ensemble_.model, ChosenTrees)


def test_there_is_no_model_to_look_into(fitted, table):
    with pytest.raises(ConfigError, match="fit with trees=False"):
        fitted.diagnose(*table)

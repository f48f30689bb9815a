"""Warnings about a table point at the line of the user who gave it."""

import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import tiny_model

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.learners.chosen_trees import divisions
from tabicl_linear.estimator.notices import brief, shown, silenced, warn_user

pytestmark = pytest.mark.usefixtures("few_trees")


def table():
    """56 columns, of which one mixes numbers and words and one is text that holds numbers."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 54)))
    frame["mixed"] = [*range(50), *["word"] * 10]
    frame["price"] = [f"${number}" for number in range(60)]
    return frame.rename(columns=str), np.arange(60) % 2


def by_table(classifier, x, y):
    classifier.fit(x, y)


def by_pieces(classifier, x, y):
    classifier.fit(iter([(x, y)]))


def by_partial_fit(classifier, x, y):
    classifier.partial_fit(x, y)


def first_then_rest(classifier, x, y):
    classifier.partial_fit(x, y).partial_fit(x, y)


@pytest.mark.parametrize("call", [by_table, by_pieces, by_partial_fit, first_then_rest])
def test_a_warning_points_at_the_call(call):
    model = tiny_model.untrained(readout="Causal")
    with pytest.warns(UserWarning, match="^(Column|Text|The)") as told:
        call(TabICLLinearClassifier(model, n_estimators=2), *table())
    assert {str(one.message).split()[0] for one in told} == {"Column", "Text", "The"}
    lines = {(one.filename, one.lineno) for one in told}
    assert lines == {(__file__, call.__code__.co_firstlineno + 1)}


def test_rows_to_predict_that_are_unlike_those_of_training_are_told_of():
    x = pd.DataFrame({"share": np.arange(60) / 60, "answer": ["yes", "no"] * 30})
    classifier = TabICLLinearClassifier(tiny_model.untrained()).fit(x, np.arange(60) % 2)
    others = pd.DataFrame({"share": x["share"] * 100, "answer": x["answer"].str.upper()})
    with pytest.warns(UserWarning, match="^(No value is known|Most numbers are)") as told:
        classifier.predict(others)
    assert [one.filename for one in told] == [__file__] * 2


def test_rows_that_are_held_are_told_of_at_first_and_at_last(monkeypatch):
    """Every call learns the columns anew."""
    monkeypatch.setattr(divisions, "LEAST_GROWING", 40)
    x, _ = table()
    rows_to_come = pd.concat([x, x.assign(**{"0": x["0"] + 1})])
    told = []
    classifier = TabICLLinearClassifier()
    for rows in range(0, 120, 20):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            piece = rows_to_come[rows : rows + 20]
            classifier.partial_fit(piece[["0", "price"]], np.arange(20) % 2)
        told.append([str(one.message).split()[0] for one in caught])
    assert told == [["Text"], [], [], ["Text"], [], []]


def test_a_wide_table_is_told_of_once_though_a_network_reads_it_too():
    x = np.random.default_rng(0).normal(size=(60, 101))
    with pytest.warns(UserWarning, match="has 101 usable columns and the model takes 100") as told:
        TabICLLinearClassifier().fit(x, np.arange(60) % 2)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("members", "each"), [(1, "the only member"), (2, "each of the 2 members")]
)
def test_members_of_a_wide_table_are_counted(members, each):
    x = np.random.default_rng(0).normal(size=(60, 3))
    ridge = RandomFeatureRidge(trees=False, n_estimators=members, max_columns=1)
    with pytest.warns(UserWarning, match=f"takes 1: {each} of the ensemble uses its own 1, inform"):
        ridge.fit(x, np.arange(60) % 2)


def test_only_the_thread_that_is_silenced_is(recwarn):
    """Filters of warnings are those of the process, and lost where threads change them."""
    warnings.simplefilter("always")
    before = list(warnings.filters)
    with silenced():
        warn_user("here")
        other = threading.Thread(target=warn_user, args=["elsewhere"])
        other.start()
        other.join()
        assert warnings.filters == before
    warn_user("here again")
    assert [str(one.message) for one in recwarn] == ["elsewhere", "here again"]


def test_names_and_cells_are_shown_in_one_short_line():
    assert shown(["a", "b ", "c\nd"]) == "a, 'b ', 'c\\nd'"
    assert brief("a\nb") == repr("a\nb")
    a_file = "'" + "x," * 10_000  # as a quote that is left open makes of the rest of it
    assert len(brief(a_file)) <= 62
    column = TablePreprocessor().fit(pd.DataFrame({"a": [1.0, 2.0]}))
    with pytest.raises(DataError) as caught:
        column.transform(pd.DataFrame({"a": [a_file]}))
    assert len(str(caught.value)) < 300


def test_of_a_long_name_the_middle_is_left_out():
    long = "begin" + "x" * 1000 + "end"
    assert len(shown(["a", long])) < 70
    assert shown(["a", long]).startswith("a, 'begin")
    assert shown([long]).endswith("end'")
    table = pd.DataFrame({"a": [1.0, 2.0], long: [1.0, 2.0]})
    with pytest.raises(DataError) as caught:
        TablePreprocessor().fit(table).transform(table[["a"]])
    assert "'beginxxx" in str(caught.value)
    assert len(str(caught.value)) < 200

"""Columns that are compared: only where comparison tells what the columns do not."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.estimator.columns import cells
from tabicl_linear.estimator.columns import pairs as module
from tabicl_linear.estimator.columns.pairs import PairColumn
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor

pytestmark = pytest.mark.usefixtures("few_trees")

LETTERS = np.array(list("abcdefghij"))


def drawn(num_rows=600, seed=0):
    """Four columns of ten values, the first two equal in four rows of ten."""
    rng = np.random.default_rng(seed)
    x = rng.integers(10, size=(num_rows, 4))
    same = rng.random(num_rows) < 0.4
    x[same, 1] = x[same, 0]
    return x, (x[:, 0] == x[:, 1]).astype(np.int64)


def compared(frame, labels, *, pairs=True):
    fitted = TablePreprocessor(pairs=pairs).fit(frame, labels)
    return fitted, [column for column in fitted.columns if isinstance(column, PairColumn)]


@pytest.mark.parametrize(
    "values", [LETTERS, np.arange(10), np.arange(10.0), LETTERS.astype(object)]
)
def test_equality_of_letters_and_of_numbers_is_found(values):
    x, labels = drawn()
    fitted, (best, *others) = compared(pd.DataFrame(values[x], columns=list("pqrs")), labels)
    assert (best.name, best.other_name, best.says) == ("p", "q", "equality")
    assert {(column.name, column.other_name) for column in others} <= {("p", "q")}
    matrix = fitted.transform(pd.DataFrame(values[x], columns=list("pqrs")))
    assert matrix[:, fitted.used.index(best)].tolist() == labels.tolist()
    assert not fitted.categorical[fitted.used.index(best)]
    assert fitted.width == 4


def test_a_difference_is_found_where_order_matters():
    x, _ = drawn()
    labels = (x[:, 2] > x[:, 3]).astype(np.int64)
    fitted, (best, *_) = compared(x.astype(float), labels)
    assert (best.position, best.other_position, best.says) == (2, 3, "difference")
    assert (fitted.transform(x)[:, fitted.used.index(best)] == x[:, 2] - x[:, 3]).all()


@pytest.mark.filterwarnings("ignore:Text is read")
def test_days_between_two_dates_are_found():
    rng = np.random.default_rng(0)
    days = rng.integers(60, size=300)
    ordered = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(900, size=300), unit="D")
    shipped = (ordered + pd.to_timedelta(days, unit="D")).strftime("%d.%m.%Y")
    frame = pd.DataFrame({"ordered": ordered, "days": days[::-1], "shipped": shipped})
    fitted, (pair,) = compared(frame, (days > 30).astype(np.int64))
    assert (pair.name, pair.other_name, pair.says) == ("ordered", "shipped", "difference")
    frame.loc[5, "ordered"] = pd.NaT
    cells = fitted.transform(frame)[:, fitted.used.index(pair)]
    np.testing.assert_array_equal(cells, np.where(np.arange(300) == 5, np.nan, -days))
    assert compared(frame, rng.integers(2, size=300))[1] == []


@pytest.mark.filterwarnings("ignore:Text is read")
def test_text_of_dates_is_read_once_for_its_parts_and_comparisons(monkeypatch):
    rng = np.random.default_rng(0)
    days = rng.integers(60, size=300)
    ordered = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(900, size=300), unit="D")
    dates = {"ordered": ordered, "shipped": ordered + pd.to_timedelta(days, unit="D")}
    frame = pd.DataFrame(dates).apply(lambda column: column.dt.strftime("%Y-%m-%d"))
    frame["at"] = [f"{hour:02}:30" for hour in rng.integers(24, size=300)]
    labels, reads, read = (days > 30).astype(np.int64), list[str](), cells._of_texts
    monkeypatch.setattr(
        cells, "_of_texts", lambda cells, form: reads.append(cells.name) or read(cells, form)
    )
    fitted, (pair,) = compared(frame, labels)
    # To learn the column, for all comparisons, and for the matrix; times of day once more there.
    assert Counter(reads) == {"ordered": 3, "shipped": 3, "at": 4}
    reads.clear()
    matrix = fitted.transform(frame)
    assert Counter(reads) == {"ordered": 1, "shipped": 1, "at": 2}
    assert len(fitted.used) > 6
    for column, values in zip(fitted.used, matrix.T, strict=True):
        given = [frame.iloc[:, column.position]]
        given += [frame["shipped"]] if column is pair else []
        np.testing.assert_array_equal(column.encode(*given).astype(np.float32), values)


def test_columns_that_tell_by_themselves_are_not_compared():
    x, _ = drawn()
    for labels in (x[:, 2] > 4, np.random.default_rng(0).integers(2, size=len(x))):
        assert compared(x.astype(float), labels.astype(np.int64))[1] == []


def test_many_columns_of_noise_are_not_compared():
    """Of 1,980 comparisons, 1 in 50 is three standard deviations above what noise tells."""
    rng = np.random.default_rng(0)
    x = rng.integers(5, size=(300, module.MOST_COLUMNS)).astype(float)
    labels = rng.integers(2, size=300)
    assert compared(x, labels)[1] == []
    same = rng.random(300) < 0.4
    x[same, 40] = x[same, 4]
    (pair,) = compared(x, (x[:, 4] == x[:, 40]).astype(np.int64))[1][:1]
    assert (pair.position, pair.other_position, pair.says) == (4, 40, "equality")


def test_values_have_to_be_shared_whole_and_several():
    x, labels = drawn()
    apart = pd.DataFrame(x, columns=list("pqrs")).astype(float)
    apart["q"] = apart["q"] + 7
    assert compared(apart, labels)[1] == []
    assert compared(x + 0.5, labels)[1] == []
    mixed = pd.DataFrame({"p": LETTERS[x[:, 0]], "q": x[:, 1]})
    assert compared(mixed, labels)[1] == []


def test_of_many_comparisons_that_tell_a_little_few_rows_show_most():
    """Hands of five ranks, of which two are equal or none are: ten pairs are alike."""
    hands = np.random.default_rng(1).integers(13, size=(100, 5))
    has_pair = np.array([len(set(hand)) < 5 for hand in hands.tolist()]).astype(np.int64)
    _, pairs = compared(pd.DataFrame(hands), has_pair)
    assert sum(column.says == "equality" for column in pairs) >= 6  # Bonferroni: 4


def test_numbers_of_few_rows_each_are_compared_by_intervals():
    """Each column tells the class; one value at a time that hardly shows, and their difference
    seems to tell more."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=200)
    strokes = (10 * labels[:, None] + rng.normal(0, 15, (200, 8))).clip(0, 100).round()
    assert compared(pd.DataFrame(strokes), labels)[1] == []


def test_columns_that_are_nearly_always_the_same_are_not_compared():
    """Whether two pixels are equal says no more than whether either is not zero."""
    x, labels = drawn(2000)
    assert compared(pd.DataFrame(x), labels)[1]
    rare = np.random.default_rng(1).random(x.shape) < 0.15
    x = np.where(rare, x, 0)
    assert not compared(pd.DataFrame(x), (x[:, 0] == x[:, 1]).astype(np.int64))[1]


def test_no_labels_no_pairs_and_none_for_the_network():
    x, labels = drawn(100)
    assert compared(x, None)[1] == []
    assert compared(x, labels, pairs=False)[1] == []
    for options in ({"ensemble": "paper"}, {"trees": False}):
        network = TabICLLinearClassifier(n_estimators=1, **options).fit(x, labels)
        assert not any(isinstance(column, PairColumn) for column in network.preprocessor_.columns)


def test_missing_and_unknown_cells_have_no_difference():
    x, labels = drawn()
    frame = pd.DataFrame(LETTERS[x], columns=list("pqrs"))
    fitted, result = compared(frame, labels)
    (equality,) = (column for column in result if column.says == "equality")
    odd = pd.DataFrame({"p": ["a", None, "zz", "zz"], "q": ["a", "a", "zz", "a"]})
    assert equality.encode(odd["p"], odd["q"]).tolist() == pytest.approx(
        [1, np.nan, 1, 0], nan_ok=True
    )
    difference = PairColumn(*equality_places(equality), "difference", ("", ""), equality.codes)
    assert difference.encode(odd["p"], odd["q"]).tolist() == pytest.approx(
        [0, np.nan, np.nan, np.nan], nan_ok=True
    )
    assert fitted.transform(frame[["s", "r", "q", "p"]]).shape == (600, len(fitted.used))


def equality_places(column):
    return column.name, column.position, column.other_name, column.other_position


def test_the_most_telling_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_PAIRS", 1)
    x, labels = drawn()
    assert len(compared(x, labels)[1]) == 1


def test_they_are_saved_and_learnt_from(tmp_path):
    x, labels = drawn(400)
    queries, answers = drawn(200, seed=1)
    classifier = RandomFeatureRidge().fit(LETTERS[x], labels)
    probabilities = classifier.predict_proba(LETTERS[queries])
    assert (probabilities.argmax(1) == answers).mean() > 0.97
    classifier.save(tmp_path / "pairs.state")
    loaded = RandomFeatureRidge.load(tmp_path / "pairs.state")
    np.testing.assert_array_equal(loaded.predict_proba(LETTERS[queries]), probabilities)

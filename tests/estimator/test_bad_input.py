"""Arguments and tables that cannot be used: one line that helps, and nothing changed."""

import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tabicl_linear
from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.ridge_inputs import RidgeOptions

PACKAGE = str(Path(tabicl_linear.__file__).parent)
TABLE = np.random.default_rng(0).normal(size=(12, 2))
LABELS = np.array([0, 1] * 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_estimators": True}, "n_estimators=True"),
        ({"n_estimators": 2.0}, r"n_estimators=2\.0"),
        ({"rows_per_batch": -5}, "rows_per_batch=-5"),
        ({"softmax_temperature": "warm"}, "softmax_temperature='warm'"),
        ({"softmax_temperature": True}, "softmax_temperature=True"),
        ({"ensemble": "large"}, "ensemble='large': give one of default, paper"),
        ({"average_logits": "mean"}, "average_logits='mean'"),
        ({"class_weight": "even"}, "class_weight='even': give 'balanced', a dict or None"),
        ({"class_weight": [1, 2]}, r"class_weight=\[1, 2\]"),
        ({"class_weight": {2: 1.0}}, r"class_weight has 2, which is not a class; .* \[0, 1\]"),
        ({"class_weight": {1: 0}}, r"class_weight\[1\]=0: give a positive number"),
        ({"class_weight": {0: "2"}}, r"class_weight\[0\]='2': give a positive number"),
        ({"class_weight": {0: None}}, r"class_weight\[0\]=None: give a positive number"),
        ({"class_weight": {0: np.nan}}, r"class_weight\[0\]=nan: give a positive number"),
        ({"class_weight": pd.Series({0: 1.0, 1: 2.0})}, "float64: give 'balanced', a dict or None"),
        ({"verbose": None}, "verbose=None: give 1 to show progress, or 0"),
        ({"verbose": "yes"}, "verbose='yes': give 1"),
        ({"softmax_temperature": np.inf}, "softmax_temperature=inf"),
        ({"softmax_temperature": np.nan}, "softmax_temperature=nan"),
        ({"random_state": -1}, "random_state=-1: give an integer from 0 to 4294967295"),
        ({"random_state": np.random.default_rng(0)}, r"random_state=Generator\(PCG64\)"),
        ({"n_jobs": 1.5}, r"n_jobs=1\.5"),
        ({"n_jobs": "2"}, "n_jobs='2'"),
        ({"device": 3.5}, r"device=3\.5 is not a torch device"),
        ({"device": "meta"}, "device='meta' is not supported"),
        ({"device": "mps"}, "device='mps' is not supported"),
    ],
)
def test_arguments_of_the_wrong_kind(checkpoint, options, message):
    classifier = TabICLLinearClassifier(checkpoint, **options)
    with pytest.raises(ConfigError, match=message) as refusal:
        classifier.fit(TABLE, LABELS)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "options",
    [
        {"verbose": False},
        {"verbose": np.bool_(False)},
        {"verbose": np.int64(0)},
        {"class_weight": {0: np.float32(2), 1: np.int64(3)}},
        {"class_weight": {0: True}},
    ],
    ids=str,
)
def test_numbers_and_flags_of_any_type_are_taken(checkpoint, options):
    fitted = TabICLLinearClassifier(checkpoint, n_estimators=1, **options).fit(TABLE, LABELS)
    assert fitted.predict(TABLE).shape == LABELS.shape


@pytest.mark.parametrize(
    ("table", "labels", "message"),
    [
        (TABLE[:, 0], LABELS, r"got 1D array instead: Reshape your data"),
        (TABLE[None], LABELS, "Found array with dim 3"),
        ([(TABLE, LABELS)], LABELS, "inhomogeneous .* or an iterator of pieces"),
        ({"a": [1, 2]}, [0, 1], r"X is a dict. Give a table: pandas\.DataFrame\(X\) of records"),
        ([{"a": 1}, {"a": 2}], [0, 1], "X is a list. Give a table: pandas"),
        (
            np.zeros(2, dtype=[("a", "f4"), ("b", "U3")]),
            [0, 1],
            "X is a ndarray. Give a table: pandas",
        ),
        (TABLE, np.eye(2)[LABELS], r"shape \(12, 2\) instead\. Give one class label for each row"),
        (TABLE + 1j, LABELS, r"Complex data not supported\. Give a table: real"),
        (TABLE[:, :0], LABELS, "0 feature"),
        (TABLE * np.nan, LABELS, "None of the 2 columns varies"),
        (TABLE, np.array([1, "a"] * 6, dtype=object), "types int and str; make them one type"),
        (TABLE, np.array([b"a", b"b"] * 6), "holds bytes, such as b.a."),
        (TABLE, np.array([1.0, np.inf] * 6), "infinity"),
        (TABLE, np.array([1j, 2] * 6), "Complex data not supported"),
        (TABLE, [5] * 12, r"one class only \(5\)"),
    ],
)
def test_tables_that_cannot_be_read(checkpoint, table, labels, message):
    with pytest.raises(DataError, match=message) as refusal:
        TabICLLinearClassifier(checkpoint).fit(table, labels)
    assert "\n" not in str(refusal.value)


def test_what_only_fit_takes(tmp_path):
    classifier = RandomFeatureRidge(n_estimators=1).fit(TABLE, LABELS)
    for queries in (str(tmp_path / "t.csv"), tmp_path / "t.csv", iter([TABLE])):
        with pytest.raises(
            DataError, match=r"^X is a .* pandas\.read_csv\(X\) of a path, one piece"
        ):
            classifier.predict(queries)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble, np.uint8, object])
def test_arrays_of_any_dtype_are_the_same_table(checkpoint, kind):
    table = np.random.default_rng(0).integers(0, 200, size=(30, 2)).astype(np.float64)
    labels = (table[:, 0] > 100).astype(int)
    expected = TabICLLinearClassifier(checkpoint, n_estimators=1).fit(table, labels)
    actual = TabICLLinearClassifier(checkpoint, n_estimators=1).fit(table.astype(kind), labels)
    np.testing.assert_array_equal(
        actual.predict_proba(table.astype(kind)), expected.predict_proba(table)
    )


@pytest.mark.parametrize("largest", [3.4e38, 1.7e308])
def test_columns_of_huge_values_are_the_same_table_too(checkpoint, largest):
    labels = (TABLE[:, 0] > 0).astype(int)
    unit = TABLE / abs(TABLE).max(axis=0)
    huge = (unit * largest).astype(np.float32 if largest < 1e300 else np.float64)
    expected, actual = (
        TabICLLinearClassifier(checkpoint, n_estimators=2).fit(x, labels).predict_proba(x)
        for x in (unit, huge)
    )
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("table", "labels", "message"),
    [
        (TABLE[:, :1], LABELS * 0, "one class"),
        (TABLE[:, :1], LABELS[:3], "inconsistent numbers"),
        (TABLE[:, :1] * 0, LABELS, "None of the 1 columns"),
        (pd.DataFrame(TABLE, columns=["p", "q"]), LABELS * 0, "one class"),
        (pd.DataFrame({"when": pd.to_timedelta(range(12), unit="D")}), LABELS, "durations"),
    ],
)
def test_a_fit_that_fails_leaves_the_classifier_as_it_was(checkpoint, table, labels, message):
    frame = pd.DataFrame(TABLE, columns=["a", "b"])
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=1).fit(frame, LABELS)
    before, expected = dict(vars(classifier)), classifier.predict_proba(frame)
    with pytest.raises(ValueError, match=message):
        classifier.fit(table, labels)
    assert dict(vars(classifier)) == before
    assert classifier.n_features_in_ == 2
    np.testing.assert_array_equal(classifier.predict_proba(frame), expected)


def test_a_partial_fit_that_is_interrupted_changes_nothing():
    """As by Ctrl-C, early or late."""
    rng = np.random.default_rng(0)
    table, labels = rng.normal(size=(2000, 30)), rng.integers(2, size=2000)
    classifier = TabICLLinearClassifier(n_estimators=1).partial_fit(table[:100], labels[:100])
    before, expected = classifier.fitted_, classifier.predict_proba(table[:100])
    for calls in (10, 300, 1500):
        with interrupted_after(calls):
            classifier.partial_fit(table[100:], labels[100:])
        assert classifier.fitted_ is before
        np.testing.assert_array_equal(classifier.predict_proba(table[:100]), expected)


def test_a_first_prediction_that_is_interrupted_changes_nothing():
    """It is this one that grows the trees of rows that were added."""
    rng = np.random.default_rng(0)
    table, labels = rng.normal(size=(200, 3)), rng.integers(2, size=200)
    one, other = (TabICLLinearClassifier().partial_fit(table, labels) for _ in range(2))
    for calls in (100, 10_000):
        with interrupted_after(calls):
            one.predict_proba(table)
    np.testing.assert_array_equal(one.predict_proba(table), other.predict_proba(table))


@contextmanager
def interrupted_after(calls):
    """As by Ctrl-C when the package has called so many of its functions. A moment of the clock
    would be another place on every machine, and is lost where Python ignores exceptions."""
    remaining = calls

    def interrupt(frame, event, _):
        nonlocal remaining
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            remaining -= 1
            if remaining == 0:
                raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        sys.setprofile(None)


def test_a_first_fit_that_fails_leaves_the_classifier_unfitted(checkpoint):
    classifier = TabICLLinearClassifier(checkpoint)
    before = dict(vars(classifier))
    with pytest.raises(DataError):
        classifier.fit(TABLE, LABELS * 0)
    assert dict(vars(classifier)) == before


def test_a_name_as_labels_of_a_frame():
    frame = pd.DataFrame(TABLE, columns=["a", "b"])
    with pytest.raises(DataError, match=r"y='b' names a column.*give .* table\['b'\] as y"):
        RandomFeatureRidge().fit(frame, "b")
    one_row = TabICLLinearClassifier()
    with pytest.raises(DataError, match=r"^y='yes' .*; the label of a single row .*, \['yes'\]\.$"):
        one_row.partial_fit(frame[:1], np.str_("yes"), classes=["no", "yes"])


def test_predictions_that_fail_change_nothing(checkpoint):
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=1).fit(TABLE, LABELS)
    expected = classifier.predict_proba(TABLE)
    for queries, message in (
        (TABLE[:, :1], "X has 1 features"),
        (TABLE[:0], "0 sample"),
        (TABLE[0], "got 1D array"),
        (np.array([["a", "b"]]), "Column 0 held numbers .* holds 'a' here"),
    ):
        with pytest.raises(ValueError, match=message) as refusal:
            classifier.predict(queries)
        assert "\n" not in str(refusal.value)
    np.testing.assert_array_equal(classifier.predict_proba(TABLE), expected)


@pytest.mark.parametrize("rows", [60, 400])
def test_a_category_for_each_row_is_named_with_their_number(rows):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"n": rng.normal(size=rows), "key": [f"customer {i}" for i in range(rows)]}
    )
    with pytest.warns(UserWarning, match=rf"'key' has {rows} categories in {rows} rows.*drop it"):
        RandomFeatureRidge().fit(frame, rng.integers(2, size=rows))


@pytest.mark.parametrize("trees", [True, False])
@pytest.mark.parametrize("options", [{"num_tanh": 10**9}, {"num_trees": 10**9}])
def test_more_features_than_memory_holds_are_refused(trees, options):
    """Before anything is drawn: it would end the process, or swap for hours."""
    name, count = next(iter(options.items()))
    classifier = RandomFeatureRidge(RidgeOptions(**options), trees=trees)
    told = rf"{name}={count:,}.* features, for which 60 rows take at least .* MiB.*give fewer"
    with pytest.raises(ConfigError, match=told):
        classifier.fit(np.random.default_rng(0).normal(size=(60, 2)), [0, 1] * 30)
    assert not hasattr(classifier, "fitted_")

"""Scores of partitioned tables, computed in this process; for clusters see test_predict_dask."""

import sys

import numpy as np
import pandas as pd
import pytest
from dask import dataframe
from sklearn.exceptions import NotFittedError

from tabicl_linear import TabICLLinearClassifier, dask_predict_proba
from tabicl_linear.errors import ConfigError, DataError


def table(rows):
    rng = np.random.default_rng(0)
    y = np.arange(rows) % 3
    frame = pd.DataFrame({"a": y + rng.normal(size=rows), "b": rng.normal(size=rows)})
    frame["kind"] = np.array(["x", "y", None], dtype=object)[rng.integers(0, 3, rows)]
    return frame, np.array(["no", "yes", "may, be"])[y]


@pytest.fixture(scope="module")
def classifier(checkpoint):
    return TabICLLinearClassifier(checkpoint, n_estimators=2).fit(*table(60))


def computed(lazy):
    return lazy.compute(scheduler="sync")


def test_the_answers_of_predict_proba_with_the_index_and_partitions_of_the_table(classifier):
    frame = table(70)[0].set_index(pd.Index(range(100, 170), name="row"))
    ddf = dataframe.from_pandas(frame[["kind", "b", "a"]], npartitions=3)
    lazy = dask_predict_proba(classifier, ddf)
    assert lazy.npartitions == 3
    names = ["proba_may, be", "proba_no", "proba_yes"]
    assert lazy.columns.tolist() == names
    assert lazy.dtypes.tolist() == [np.float64] * 3
    result = computed(lazy)
    assert result.columns.tolist() == names
    assert result.index.equals(frame.index)
    np.testing.assert_allclose(result, classifier.predict_proba(frame), atol=1e-6)


def test_in_memory_such_a_table_is_that_of_pandas(checkpoint, classifier):
    """As an array it had no names, so that columns in another order were taken for each other."""
    frame, labels = table(60)
    ddf = dataframe.from_pandas(frame, npartitions=2)
    expected = classifier.predict_proba(frame)
    np.testing.assert_array_equal(classifier.predict_proba(ddf[["kind", "b", "a"]]), expected)
    y = dataframe.from_pandas(pd.Series(labels), npartitions=2)
    fitted = TabICLLinearClassifier(checkpoint, n_estimators=2).fit(ddf, y)
    np.testing.assert_array_equal(fitted.predict_proba(frame), expected)


def test_partitions_without_rows(classifier):
    frame = table(40)[0]
    ddf = dataframe.from_pandas(frame, npartitions=4)
    few = ddf.map_partitions(lambda rows: rows[rows.index >= 25])
    result = computed(dask_predict_proba(classifier, few))
    np.testing.assert_allclose(result, classifier.predict_proba(frame[25:]), atol=1e-6)
    none = ddf.map_partitions(lambda rows: rows[:0])
    nothing = computed(dask_predict_proba(classifier, none))
    assert nothing.shape == (0, 3)


def test_the_classifier_does_not_change(classifier):
    before = dict(vars(classifier))
    noisy = TabICLLinearClassifier.__new__(TabICLLinearClassifier)
    noisy.__dict__.update(before | {"verbose": 1})
    computed(dask_predict_proba(noisy, dataframe.from_pandas(table(20)[0], npartitions=2)))
    assert noisy.verbose == 1
    assert vars(classifier) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="b"), "missing 'b'"),
        (lambda frame: frame.assign(more=1), "unknown 'more'"),
    ],
)
def test_columns_are_compared_before_anything_is_computed(classifier, change, message):
    ddf = dataframe.from_map(lambda _: 1 / 0, [0], meta=change(table(4)[0]))
    with pytest.raises(DataError, match=message):
        dask_predict_proba(classifier, ddf)


def test_columns_without_names_are_counted(checkpoint):
    frame, y = table(30)
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=1).fit(frame[["a", "b"]].values, y)
    ddf = dataframe.from_pandas(frame[["a", "b"]], npartitions=2)
    # The names that the table now has are no difference, as in scikit-learn, but tell of it.
    with pytest.raises(DataError, match="has 1 column and the training table had 2"):
        dask_predict_proba(classifier, ddf[["a"]])


def test_values_that_cannot_be_used_are_found_when_it_is_computed(classifier):
    frame = table(30)[0].assign(b="text")
    lazy = dask_predict_proba(classifier, dataframe.from_pandas(frame, npartitions=2))
    with pytest.raises(DataError, match="'b' held numbers"):
        computed(lazy)


def test_what_lacks_is_said(classifier, monkeypatch):
    ddf = dataframe.from_pandas(table(20)[0], npartitions=1)
    with pytest.raises(NotFittedError):
        dask_predict_proba(TabICLLinearClassifier(), ddf)
    monkeypatch.setitem(sys.modules, "dask.dataframe", None)
    with pytest.raises(ConfigError, match=r"needs dask .*pip install 'tabicl-linear\[dask\]'"):
        dask_predict_proba(classifier, ddf)

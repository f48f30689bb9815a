"""scikit-learn's tools around the classifiers: pipelines, searches, calibration, copies."""

import pickle
import warnings
from contextlib import contextmanager

import few_trees
import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
import torch
from joblib.externals.loky import get_reusable_executor
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import VotingClassifier
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.fixes import parse_version
from tolerances import ROUNDING

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.estimator.learners.chosen_trees import boosting


@pytest.fixture(autouse=True)
def few_trees_in_this_process(request, monkeypatch):
    """Processes of joblib grow as many as ever, and so does the one that they are compared with."""
    if "own_process" not in request.keywords:
        monkeypatch.setattr(boosting, "NUM_TREES", few_trees.FEW)


@pytest.fixture(scope="module")
def iris():
    table, labels = load_iris(return_X_y=True, as_frame=True)
    order = np.random.default_rng(0).permutation(len(table))
    names = np.array(["setosa", "versicolor", "virginica"])
    return table.iloc[order].reset_index(drop=True), names[labels.to_numpy()[order]]


@pytest.fixture(scope="module", params=["TabICLLinearClassifier", "RandomFeatureRidge"])
def classifier(request, checkpoint):
    if request.param == "RandomFeatureRidge":
        return RandomFeatureRidge(n_estimators=1)
    return TabICLLinearClassifier(checkpoint, n_estimators=1)


def test_pipeline(classifier, iris):
    table, labels = iris
    table = table.assign(kind=np.where(table.iloc[:, 3] > 1, "wide", "slim"))
    columns = make_column_transformer(
        (OneHotEncoder(sparse_output=False), make_column_selector(dtype_exclude="number")),
        remainder=StandardScaler(),
    )
    pipeline = make_pipeline(columns, clone(classifier)).fit(table, labels)
    assert pipeline.score(table, labels) > 0.5  # one view of a tiny model; chance is 1/3
    assert pipeline.set_output(transform="pandas").fit(table, labels).score(table, labels) > 0.5


@pytest.fixture(scope="module")
def fitted(classifier, iris):
    """Two members, as they are with the usual settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "NUM_TREES", few_trees.FEW)
        return clone(classifier).set_params(n_estimators=2).fit(*iris)


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("setting", "tolerance"),
    [
        (lambda: config_context(transform_output="pandas"), 0),
        (lambda: config_context(transform_output="polars"), 0),
        (lambda: default_dtype(torch.float64), ROUNDING),
        (lambda: torch.device("meta"), 0),  # as torch.set_default_device, to one without values
    ],
    ids=["pandas", "polars", "float64", "device"],
)
def test_global_settings_change_nothing(fitted, iris, setting, tolerance):
    table, labels = iris
    with setting():
        actual = clone(fitted).fit(table, labels).predict_proba(table)
    np.testing.assert_allclose(actual, fitted.predict_proba(table), rtol=0, atol=tolerance)


def test_grid_search(classifier, iris):
    table, labels = iris
    grid = [{"n_estimators": [2], "softmax_temperature": [0.5]}, {"softmax_temperature": ["auto"]}]
    search = GridSearchCV(classifier, grid, cv=2, scoring="neg_log_loss").fit(table, labels)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.classes_.tolist() == ["setosa", "versicolor", "virginica"]


def test_cross_validation(classifier, iris):
    table, labels = iris
    assert cross_val_score(classifier, table, labels, cv=3, scoring="roc_auc_ovr").min() > 0.8
    logs = cross_val_predict(classifier, table, labels, cv=3, method="predict_log_proba")
    np.testing.assert_allclose(np.exp(logs).sum(1), 1)


@pytest.mark.parametrize(
    "method",
    [
        "sigmoid",
        "isotonic",
        pytest.param(
            "temperature",
            marks=pytest.mark.skipif(
                parse_version(sklearn.__version__) < parse_version("1.8"),
                reason="scikit-learn has it from 1.8 on",
            ),
        ),
    ],
)
def test_calibration(classifier, iris, method):
    table, labels = iris
    calibrated = CalibratedClassifierCV(classifier, method=method, cv=2).fit(table, labels)
    np.testing.assert_allclose(calibrated.predict_proba(table).sum(1), 1)
    assert calibrated.score(table, labels) > 0.7


def test_importance_and_votes(classifier, iris):
    table, labels = iris
    fitted = clone(classifier).fit(table, labels)
    noise = permutation_importance(fitted, table, labels, n_repeats=2, random_state=0)
    assert noise.importances_mean.argmax() in (2, 3)
    both = VotingClassifier(
        [("ours", clone(classifier)), ("other", LogisticRegression(max_iter=1000))], voting="soft"
    )
    assert both.fit(table, labels).score(table, labels) > 0.8


def test_score_takes_labels_as_fit_does(classifier, iris):
    """Integers that a column of objects holds, as after `dropna`, are not `unknown` labels."""
    table, labels = iris
    codes = np.unique(labels, return_inverse=True)[1]
    fitted = clone(classifier).fit(table, codes.astype(object))
    expected = np.mean(fitted.predict(table) == codes)
    for given in (codes.astype(object), pa.array(codes), pd.Series(codes, dtype="Int64")):
        assert fitted.score(table, given) == expected
    weights = codes == 1
    assert fitted.score(table, codes, sample_weight=weights) == np.mean(
        fitted.predict(table)[weights] == 1
    )


def test_clone_keeps_arguments_and_nothing_else(classifier, iris):
    fitted = clone(classifier).fit(*iris)
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not [name for name in vars(copied) if name.endswith("_")]
    names = [name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")]
    assert {"classes_", "feature_names_in_"} <= set(names)
    for name in (name for name in names if name != "fitted_"):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}' yet.* Call fit"):
            getattr(copied, name)


def test_pickle_and_joblib(classifier, iris, tmp_path):
    table, labels = iris
    fitted = clone(classifier).set_params(class_weight="balanced").fit(table, labels)
    expected = fitted.predict_proba(table)
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    for again in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "fitted.joblib")):
        np.testing.assert_array_equal(again.predict_proba(table), expected)


@pytest.mark.own_process
def test_processes_of_joblib(classifier, iris):
    """A single one, since each of those of `n_jobs=2` would take seconds to import all it needs."""
    table, labels = iris
    process = get_reusable_executor(max_workers=1)
    scores = process.submit(cross_val_score, classifier, table, labels, cv=2).result()
    np.testing.assert_allclose(scores, cross_val_score(classifier, table, labels, cv=2))


@pytest.mark.parametrize("n_jobs", [None, 1, -1])
def test_globals_are_left_as_found(classifier, iris, n_jobs):
    table, labels = iris
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    before = (
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
        list(warnings.filters),
        np.geterr(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
    )
    fitted = clone(classifier).set_params(n_jobs=n_jobs, softmax_temperature="auto")
    fitted.fit(table, labels).predict_log_proba(table)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    assert before == (
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
        list(warnings.filters),
        np.geterr(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
    )
    assert not torch.is_inference_mode_enabled()

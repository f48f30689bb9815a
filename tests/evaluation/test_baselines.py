"""Baselines on real tables of scikit-learn, with the real libraries."""

import importlib.util
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny_model
from evaluation import benchmark_folder
from few_trees import few_trees_of_baselines

from tabicl_linear._version import __version__
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.estimator import random_feature_ridge
from tabicl_linear.estimator.random_feature_ridge import RandomFeatureRidge
from tabicl_linear.evaluation import baselines
from tabicl_linear.evaluation.baselines import BASELINES, Baseline, baseline_version
from tabicl_linear.evaluation.benchmarks import folder_benchmark
from tabicl_linear.evaluation.candidates import candidates
from tabicl_linear.evaluation.metrics import score
from tabicl_linear.evaluation.protocol import folds
from tabicl_linear.evaluation.timed_fit import try_out

__all__ = ["few_trees_of_baselines"]
FREE = [name for name, baseline in BASELINES.items() if not baseline.has_weights]

OWN = """
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier

NUMBER = 3


class Likely(DummyClassifier):
    pass


class Needy(DummyClassifier):
    def __init__(self, depth):
        self.depth = depth


def forest():
    return RandomForestClassifier(5)
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = benchmark_folder.write(tmp_path_factory.mktemp("made") / "tables")
    benchmark = folder_benchmark(folder, "small")
    return [(benchmark.table(s), benchmark.protocol) for s in benchmark.sources]


@pytest.mark.usefixtures("few_trees_of_baselines")
@pytest.mark.parametrize("name", FREE)
def test_a_baseline_learns(tables, name):
    if importlib.util.find_spec(BASELINES[name].package) is None:
        pytest.skip(f"{BASELINES[name].package} is not installed")
    (candidate,) = candidates([], [name], "default")
    for times, (table, protocol) in enumerate(tables, start=1):  # that of three classes twice
        context, queries = next(iter(folds(table, protocol)))
        x = candidate.sees(table)
        trials = [
            try_out(candidate.make(1), x.iloc[context], table.y[context], x.iloc[queries])
            for _ in range(times)
        ]
        np.testing.assert_array_equal(trials[0].probabilities, trials[-1].probabilities)
        assert score(trials[0].probabilities, table.y[queries], trials[0].classes).roc_auc > 0.65


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("logistic_regression", {"float32"}), ("catboost", {"float32", "category"})],
)
def test_what_a_baseline_sees(tables, name, kinds):
    if importlib.util.find_spec(BASELINES[name].package) is None:
        pytest.skip(f"{BASELINES[name].package} is not installed")
    (candidate,) = candidates([], [name], "default")
    assert {str(kind) for kind in candidate.sees(tables[0][0]).dtypes} == kinds


@pytest.mark.usefixtures("few_trees_of_baselines")
def test_categories_that_the_context_lacks_are_taken(tables):
    x = pd.DataFrame({"x": pd.Categorical(["a", "b", None] * 20), "z": np.arange(60.0)})
    y = np.array(["p", "q"] * 30, dtype=object)
    queries = pd.DataFrame({"x": pd.Categorical(["c", None]), "z": [1.0, np.nan]})
    for name in set(FREE) & {"logistic_regression", "random_forest", "catboost", "xgboost"}:
        if importlib.util.find_spec(BASELINES[name].package) is None:
            continue
        trial = try_out(BASELINES[name].make(threads=1), x, y, queries)
        assert trial.probabilities.shape == (2, 2)


def test_versions():
    assert baseline_version("random_forest") == __import__("sklearn").__version__
    (ridge,) = candidates([], ["random_feature_ridge"], "default")
    assert re.fullmatch(rf"tabicl_linear {__version__}, options [0-9a-f]{{8}}", ridge.identity)


def test_options_of_our_own_baseline_are_part_of_its_identity(monkeypatch):
    def identity():
        return candidates([], ["random_feature_ridge"], "default")[0].identity

    first = identity()
    assert identity() == first
    with monkeypatch.context() as patch:
        changed = replace(random_feature_ridge.OPTIONS, seed=1)
        patch.setattr(random_feature_ridge, "OPTIONS", changed)
        assert identity() != first
    assert identity() == first
    arguments = RandomFeatureRidge(max_columns=39).get_params()
    monkeypatch.setattr(RandomFeatureRidge, "get_params", lambda self: arguments)
    assert identity() != first


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("boosting", "give one of logistic_regression, "),
        ("tabflex", "fetches its weights itself and gives labels"),
        ("random_forest:weights", "it has no weights; give random_forest"),
        ("absent", "not installed; pip install absent_library"),
        ("absent_extra", r"not installed; pip install 'tabicl-linear\[baselines\]'"),
        ("weighty", "give weighty:PATH with the file of its weights; nothing is downloaded"),
        ("weighty:nowhere.ckpt", "give weighty:PATH"),
    ],
)
def test_baselines_that_cannot_be_had(monkeypatch, given, words):
    made = baselines._logistic_regression
    monkeypatch.setitem(BASELINES, "absent", Baseline(made, "absent_library"))
    monkeypatch.setitem(BASELINES, "absent_extra", Baseline(made, "absent_library", extra=True))
    monkeypatch.setitem(BASELINES, "weighty", Baseline(made, has_weights=True))
    with pytest.raises(ConfigError, match=words):
        candidates([], [given], "default")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The file of a module with classifiers of a user's own."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_classifiers", raising=False)
    (tmp_path / "own_classifiers.py").write_text(OWN)
    return tmp_path / "own_classifiers.py"


def test_a_baseline_of_the_user_s_own(tables, own):
    named = ["own_classifiers.Likely", "own_classifiers.forest"]
    likely, forest = candidates([], named, "default")
    assert [likely.name, forest.name] == named
    assert forest.make(3).n_jobs == 3
    table, protocol = tables[0]
    assert "category" in map(str, likely.sees(table).dtypes)
    context, queries = next(iter(folds(table, protocol)))
    x = likely.sees(table)
    trial = try_out(likely.make(1), x.iloc[context], table.y[context], x.iloc[queries])
    np.testing.assert_allclose(trial.probabilities.sum(1), 1)
    library, ours = candidates([], ["sklearn.dummy.DummyClassifier"], "default")[0], likely.identity
    assert library.identity == f"sklearn {baseline_version('random_forest')}"
    own.write_text(f"{OWN}# changed")
    assert candidates([], named, "default")[0].identity != ours


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_classifiers.Absent", "has no attribute 'Absent'; give module.Class of a scikit"),
        ("nowhere.Absent", r"No module named 'nowhere'; .*PYTHONPATH=FOLDER"),
        ("own_classifiers.Needy", "missing 1 required positional argument: 'depth'"),
        ("sklearn.svm.LinearSVC", "no attribute 'predict_proba'"),
        ("own_classifiers.NUMBER", "'int' object is not callable"),
    ],
)
def test_what_is_no_baseline_is_refused_before_anything_is_read(own, name, words):
    with pytest.raises(ConfigError, match=rf"--baseline {name}: .*{words}"):
        candidates([], [name], "default")


def test_weights_reach_the_baseline(monkeypatch, tmp_path):
    def make(weights, threads=None):
        return weights, threads

    monkeypatch.setitem(BASELINES, "weighty", Baseline(make, has_weights=True))
    path = tmp_path / "weights.ckpt"
    path.write_bytes(b"w")
    (candidate,) = candidates([], [f"weighty:{path}"], "default")
    assert candidate.make(3) == (str(path), 3)
    assert candidate.name == "weighty"
    path.write_bytes(b"v")
    assert candidates([], [f"weighty:{path}"], "default")[0].identity != candidate.identity


def test_paths_of_models_may_hold_equals_signs(tmp_path):
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    path = tiny_model.save(tiny_model.trained(), folder / "epoch=0-step=4.ckpt")
    plain, named = candidates([str(path), f"it={path}"], [], "default")
    assert (plain.name, named.name) == ("epoch=0-step=4", "it")
    assert plain.path == named.path == path
    with pytest.raises(CheckpointError, match="there is no file none"):
        candidates(["it=none"], [], "default")

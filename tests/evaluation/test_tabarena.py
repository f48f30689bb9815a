"""The model behind the interface of AutoGluon and TabArena: the real ones if they are installed."""

import importlib
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import tiny_model
from evaluation import autogluon_stub
from forked import forked

from tabicl_linear import TabICLLinearClassifier

__all__ = ["forked"]
HOME = "tabicl_linear.evaluation.tabarena"


@pytest.fixture(scope="module")
def interface():
    """Imports a module of the package, with stubs for what is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for package in ("autogluon", "tabarena"):
            if find_spec(package) is None:
                autogluon_stub.install(patch, package)
        yield lambda name: importlib.import_module(f"{HOME}.{name}")
        for name in ("info", "hpo", "model"):
            sys.modules.pop(f"{HOME}.{name}", None)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_model.save(tiny_model.untrained(), tmp_path_factory.mktemp("tiny") / "tiny.ckpt")


@pytest.fixture
def make(interface, weights, tmp_path):
    """An unfitted model."""

    def make(problem_type="binary", **hyperparameters):
        return interface("model").TabICLLinearModel(
            path=str(tmp_path / "model"),
            name="model",
            problem_type=problem_type,
            eval_metric="roc_auc" if problem_type == "binary" else "log_loss",
            hyperparameters={"model": str(weights), "n_estimators": 2} | hyperparameters,
        )

    return make


def table(classes, rows=90):
    """Numbers, categories and gaps, with labels as AutoGluon gives them."""
    rng = np.random.default_rng(0)
    y = pd.Series(np.arange(rows) % classes)
    x = pd.DataFrame({"a": y + rng.normal(size=rows), "b": rng.normal(size=rows)})
    x["kind"] = pd.Categorical(np.array(["u", "v", "w"])[rng.integers(0, 3, rows)])
    x.loc[3, "a"] = np.nan
    x.loc[4, "kind"] = np.nan
    return x, y


@pytest.mark.parametrize(("problem_type", "classes"), [("binary", 2), ("multiclass", 3)])
def test_it_predicts_what_the_classifier_predicts(make, weights, problem_type, classes):
    x, y = table(classes)
    model = make(problem_type, random_state=5)
    model.fit(X=x[:60], y=y[:60], num_cpus=1, num_gpus=0)
    alone = TabICLLinearClassifier(weights, n_estimators=2, random_state=5, device="cpu")
    wanted = alone.fit(x[:60], y[:60]).predict_proba(x[60:])
    wanted = wanted[:, 1] if problem_type == "binary" else wanted
    # AutoGluon gives float32.
    result = model.predict_proba(x[60:]).astype(np.float32)
    np.testing.assert_array_equal(result, wanted.astype(np.float32))


def test_resources_are_autogluon_s(make):
    x, y = table(2)
    model = make(n_jobs=7, device="cuda:3")
    model.fit(X=x, y=y, num_cpus=1, num_gpus=0)
    assert model.model.n_jobs == 1
    assert model.get_device() == "cpu"


def test_it_predicts_the_same_after_saving(make):
    x, y = table(2)
    model = make()
    model.fit(X=x[:60], y=y[:60], num_cpus=1, num_gpus=0)
    before = model.predict_proba(x[60:])
    np.testing.assert_array_equal(type(model).load(model.save()).predict_proba(x[60:]), before)


def test_only_classification_is_offered(interface):
    model = interface("model").TabICLLinearModel
    assert model.supported_problem_types() == ["binary", "multiclass"]


def test_memory_grows_with_the_table_up_to_what_is_computed_at_a_time(interface):
    def estimate(rows, columns):
        model = interface("model").TabICLLinearModel
        return model._estimate_memory_usage_static(X=pd.DataFrame(np.zeros((rows, columns))))

    assert 1e9 < estimate(100, 5) < estimate(1000, 5) < estimate(1000, 20)
    # Measured: 2.3 GB at 2,048 rows of 40 columns, 1.7 GB at 2,048 of 10, with 8 members.
    assert 2.3e9 < estimate(2048, 40) < 5e9
    assert 1.7e9 < estimate(2048, 10) < 5e9
    assert estimate(1_000_000, 10) < 20e9
    assert estimate(2048, 500) < 5e9


def test_the_registry_gets_one_configuration(interface):
    info, model = interface("info").tabicl_linear_info, interface("model").TabICLLinearModel
    assert info.model_cls is model
    assert info.search_space.manual_configs == [{}]
    assert info.search_space.search_space == {}
    assert info.pip_extra == ("tabicl-linear",)


def import_without_autogluon(_):
    # None in sys.modules makes an import fail, installed or not.
    for name in [name for name in sys.modules if name.startswith(("autogluon", HOME))]:
        del sys.modules[name]
    sys.modules["autogluon"] = None
    importlib.import_module(f"{HOME}.model")


def test_without_autogluon_it_says_what_to_install(forked):
    process = forked(import_without_autogluon)
    assert process.wait() == 1
    assert "pip install 'autogluon.tabular>=1.6,<1.7'" in process.said()[-1]


@pytest.mark.skipif(find_spec("autogluon") is None, reason="AutoGluon is not installed")
def test_autogluon_s_own_checks_pass(interface, weights, tmp_path, monkeypatch):
    from autogluon.tabular.testing import FitHelper

    monkeypatch.chdir(tmp_path)
    hyperparameters = {"model": str(weights), "n_estimators": 1}
    FitHelper.verify_model(interface("model").TabICLLinearModel, hyperparameters)


@pytest.mark.skipif(find_spec("tabarena") is None, reason="TabArena is not installed")
def test_tabarena_s_registry_takes_it(interface):
    from tabarena.models._registry import get_model_registry, register_model_info

    info = interface("info")
    register_model_info(info.tabicl_linear_info)
    assert get_model_registry()[info.METHOD] is info.tabicl_linear_info
    (experiment,) = info.tabicl_linear_info.search_space.generate_all_bag_experiments(
        num_random_configs=0
    )
    assert experiment.name.startswith("TA-TabICLLinear")

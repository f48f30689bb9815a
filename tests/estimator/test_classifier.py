import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tiny_model
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.checkpoint import export
from tabicl_linear.errors import CheckpointError, ConfigError, DataError
from tabicl_linear.estimator.fitted import Fitted
from tabicl_linear.shipped import WEIGHTS

LOADERS = {"breast_cancer": load_breast_cancer, "iris": load_iris, "wine": load_wine}


def split(name, **options):
    table, labels = LOADERS[name](return_X_y=True, **options)
    return train_test_split(table, labels, random_state=0, stratify=labels)


@pytest.fixture(scope="module")
def wine():
    return split("wine")


@pytest.fixture(scope="module")
def wine_classifier(checkpoint, wine):
    return TabICLLinearClassifier(checkpoint, n_estimators=4).fit(wine[0], wine[2])


@pytest.mark.parametrize(("name", "least"), [("breast_cancer", 0.93), ("iris", 0.9), ("wine", 0.9)])
def test_real_tables(checkpoint, name, least):
    train, test, train_labels, test_labels = split(name)
    classifier = TabICLLinearClassifier(checkpoint).fit(train[:, :20], train_labels)
    probabilities = classifier.predict_proba(test[:, :20])
    if len(classifier.classes_) == 2:
        probabilities = probabilities[:, 1]
    assert roc_auc_score(test_labels, probabilities, multi_class="ovr") > least


def awkward(table):
    """The iris columns in the dtypes that users bring."""
    frame = pd.DataFrame(np.asarray(table), columns=["a", "b", "c", "d"])
    frame["text"] = np.where(frame.d > 1.3, "wide", "slim")
    frame["kind"] = frame.text.astype("category")
    frame["flag"] = pd.array(frame.d > 0.8, dtype="boolean")
    frame["count"] = pd.array(frame.a.round(), dtype="Int64")
    frame["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(frame.c, unit="D")
    frame["void"] = None
    frame.loc[::7, ["text", "flag", "count", "when", "kind", "b"]] = None
    frame["huge"] = 1e9 + frame.c / 100
    frame.loc[3, "huge"] = np.inf
    return frame


def test_frames_of_many_dtypes_and_string_labels(checkpoint):
    train, test, train_labels, test_labels = split("iris")
    names = np.array(["setosa", "versicolor", "virginica"])
    labels = pd.Series(names[train_labels], dtype="string")
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=4).fit(awkward(train), labels)
    assert set(classifier.predict(awkward(test))) <= set(names)
    assert classifier.classes_.tolist() == names.tolist()
    # The tiny model has not learnt to see past columns that say little, such as weekdays here.
    ridge = RandomFeatureRidge(n_estimators=4).fit(awkward(train), labels)
    assert (ridge.predict(awkward(test)) == names[test_labels]).mean() > 0.85
    assert classifier.feature_names_in_.tolist() == awkward(test).columns.tolist()


def test_dtypes_may_change_between_fit_and_predict(checkpoint):
    train, test, labels, _ = split("iris")
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=2).fit(awkward(train), labels)
    frame = awkward(test)
    expected = classifier.predict_proba(frame)
    changed = frame[frame.columns[::-1]].assign(
        text=frame.text.astype("category"),
        kind=frame.kind.astype(object),
        a=frame.a.astype(str),
        count=frame["count"].astype("Float64"),
        flag=frame.flag.astype(object),
    )
    np.testing.assert_array_equal(classifier.predict_proba(changed), expected)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([True, False] * 10),
        np.array([7, -1] * 10),
        np.array(["b", "a"] * 10, dtype=object),
        pd.Series(["b", "a"] * 10, dtype="category"),
        pd.Series([1, 0] * 10, dtype="Int64"),
        pd.Series([True, False] * 10, dtype="boolean"),
        pd.Series([1, 0] * 10, dtype=object),
    ],
    ids=lambda labels: f"{labels.dtype}",
)
def test_labels_keep_their_values(checkpoint, labels):
    table = np.array([[2.0, 1.0], [-2.0, -1.0]] * 10) + np.arange(20)[:, None] / 100
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=2).fit(table, labels)
    assert classifier.classes_.tolist() == sorted(set(labels))
    assert classifier.predict(table).tolist() == list(labels)


@pytest.mark.parametrize("rows_per_batch", [1, 12, 37, 100_000])
def test_predictions_do_not_depend_on_chunks_or_order(wine_classifier, wine, rows_per_batch):
    test = wine[1]
    expected = wine_classifier.predict_proba(test)
    chunked = copy.deepcopy(wine_classifier).set_params(rows_per_batch=rows_per_batch)
    order = np.random.default_rng(0).permutation(len(test))
    np.testing.assert_allclose(chunked.predict_proba(test[order]), expected[order], atol=1e-7)
    np.testing.assert_allclose(chunked.predict_proba(test[:1]), expected[:1], atol=1e-7)


def test_a_double_model_agrees_to_double_precision(wine):
    train, test, labels, _ = wine
    model = copy.deepcopy(tiny_model.trained()).double()
    classifier = TabICLLinearClassifier(model, n_estimators=2).fit(train, labels)
    expected = classifier.predict_proba(test)
    classifier.set_params(rows_per_batch=3)
    np.testing.assert_allclose(classifier.predict_proba(test), expected, atol=1e-12)


def test_same_seed_same_numbers_another_seed_others(checkpoint, wine, wine_classifier):
    train, test, labels, _ = wine
    again = clone(wine_classifier).fit(train, labels)
    other = clone(wine_classifier).set_params(random_state=1).fit(train, labels)
    expected = wine_classifier.predict_proba(test)
    np.testing.assert_array_equal(again.predict_proba(test), expected)
    assert np.abs(other.predict_proba(test) - expected).max() > 1e-4


def test_fitted_state_is_a_value_without_training_rows(wine_classifier, wine, checkpoint):
    train, test, labels, _ = wine
    pickled = pickle.dumps(wine_classifier)
    again = pickle.loads(pickled)
    expected = wine_classifier.predict_proba(test)
    np.testing.assert_array_equal(again.predict_proba(test), expected)
    repeated = TabICLLinearClassifier(checkpoint, n_estimators=4).fit(
        np.repeat(train, 7, axis=0), np.repeat(labels, 7)
    )
    # Seven times the rows: the same size, up to some digits in pickled integers.
    assert abs(len(pickle.dumps(repeated)) - len(pickled)) < 200
    assert repeated.state_bytes_ == wine_classifier.state_bytes_


def test_a_model_given_is_neither_moved_nor_changed(wine):
    model = tiny_model.untrained().train()
    before = copy.deepcopy(model.state_dict())
    TabICLLinearClassifier(model, n_estimators=1).fit(wine[0], wine[2]).predict(wine[1])
    assert model.training
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


FORKED = """
import os
import sys
import numpy as np
import torch
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.learners.chosen_trees import boosting

boosting.NUM_TREES = 8
torch.set_num_threads(2)  # as outside of fits, on a machine of several cores
x = np.random.default_rng(0).normal(size=(300, 4))
y = x[:, 0] > 0
expected = TabICLLinearClassifier(n_jobs=2).fit(x, y).predict(x)
child = os.fork()
if child == 0:
    actual = TabICLLinearClassifier(n_jobs=1).fit(x, y).predict(x)
    os._exit(0 if (actual == expected).all() else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_fits_with_one_thread():
    """Of several it would wait for those that did not survive the fork."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=120)


def test_threads_and_random_states_are_left_alone(checkpoint, wine):
    train, test, labels, _ = wine
    threads = torch.get_num_threads()
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=2, n_jobs=threads + 1)
    classifier.fit(train, labels).predict(test)
    with pytest.raises(DataError):
        classifier.predict(pd.DataFrame(index=[]))
    assert torch.get_num_threads() == threads
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert not torch.is_inference_mode_enabled()


def test_labels_are_those_of_the_fit_that_predicts(wine_classifier, wine, monkeypatch):
    """Another thread may fit meanwhile, and find other classes, or the same in another order."""
    train, test, labels, _ = wine
    classifier = copy.copy(wine_classifier)
    former = classifier.predict(test).tolist()
    other = clone(classifier).fit(train, np.array(["c", "b", "a"])[labels])
    plan = classifier._plan

    def plan_while_another_thread_fits():
        classifier.fitted_ = other.fitted_
        return plan()

    monkeypatch.setattr(classifier, "_plan", plan_while_another_thread_fits)
    assert classifier.predict(test).tolist() in (former, other.predict(test).tolist())


def test_of_classes_equally_probable_the_first_is_predicted(wine_classifier, wine, monkeypatch):
    """Though their scores differ, by less than probabilities can."""
    monkeypatch.setattr(Fitted, "scores", lambda *_: np.array([[-1.0, 0.0, 1e-17]]))
    query = wine[1][:1]
    probabilities = wine_classifier.predict_proba(query)
    assert probabilities[0, 1] == probabilities[0, 2]
    assert wine_classifier.predict(query) == wine_classifier.classes_[probabilities.argmax()]


def test_one_context_row_per_class_and_one_column(checkpoint):
    classifier = TabICLLinearClassifier(checkpoint).fit([[-1.0], [1.0]], ["low", "high"])
    probabilities = classifier.predict_proba([[-1.0], [1.0], [np.nan]])
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(1), 1)


def test_queries_with_unseen_categories_missing_and_infinite_values(checkpoint):
    train = pd.DataFrame({"a": ["x", "y"] * 8, "b": np.arange(16.0)})
    classifier = TabICLLinearClassifier(checkpoint).fit(train, [0, 1] * 8)
    queries = pd.DataFrame({"a": [None, "new", "x"], "b": [np.inf, np.nan, 1e300]})
    assert np.isfinite(classifier.predict_proba(queries)).all()
    all_missing = pd.DataFrame({"a": [None], "b": [None]})
    assert np.isfinite(classifier.predict_proba(all_missing)).all()


TABLE = np.random.default_rng(0).normal(size=(12, 2))


@pytest.mark.parametrize(
    ("table", "labels", "message"),
    [
        (TABLE, np.zeros(12), "one class only .*0.0"),
        (TABLE[:1], [1], "one class only"),
        (TABLE, [None, *"ababababab", "a"], "1 of 12 labels are missing; drop"),
        (TABLE, np.linspace(0, 1, 12), "Unknown label type: continuous"),
        (TABLE[:, :1] * 0, [0, 1] * 6, "None of the 1 columns varies"),
        (pd.DataFrame(TABLE)[:0], [], "The table has 0 rows"),
        (TABLE[:0], [], "0 sample"),
        (TABLE, [0, 1], "inconsistent numbers of samples"),
    ],
)
@pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning")
def test_bad_training_tables(checkpoint, table, labels, message):
    with pytest.raises(ValueError, match=message) as error:
        TabICLLinearClassifier(checkpoint).fit(table, labels)
    assert "\n" not in str(error.value)


def test_other_columns_at_prediction(wine_classifier, wine, checkpoint):
    with pytest.raises(ValueError, match="X has 3 features"):
        wine_classifier.predict(wine[1][:, :3])
    frame = pd.DataFrame(TABLE, columns=["a", "b"])
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=1).fit(frame, [0, 1] * 6)
    with pytest.raises(DataError, match="missing 'b'; unknown 'c'"):
        classifier.predict(frame.rename(columns={"b": "c"}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_estimators": 0}, "n_estimators=0: give a positive integer"),
        ({"rows_per_batch": 1.5}, "rows_per_batch=1.5"),
        ({"softmax_temperature": 0}, "softmax_temperature=0"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"device": "toaster"}, "device='toaster' is not a torch device"),
        ({"device": "cuda:99"}, "device='cuda:99', but torch sees"),
        ({"model": 3}, "model=3"),
    ],
)
def test_bad_arguments(checkpoint, options, message):
    classifier = TabICLLinearClassifier(**({"model": checkpoint} | options))
    with pytest.raises(ConfigError, match=message):
        classifier.fit(TABLE, [0, 1] * 6)


def test_missing_models(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match=r"nowhere.*no such file; give 'default' or 'stream"):
        TabICLLinearClassifier(tmp_path / "nowhere.ckpt").fit(TABLE, [0, 1] * 6)
    monkeypatch.setitem(WEIGHTS, "default", tmp_path / "default.safetensors")
    with pytest.raises(CheckpointError, match=r"carries no weights.*make demo.*model=PATH"):
        TabICLLinearClassifier().fit(TABLE, [0, 1] * 6)


def test_default_weights_are_used_where_they_are(tmp_path, monkeypatch, checkpoint, wine):
    weights = tmp_path / "default.safetensors"
    export(checkpoint, weights)
    monkeypatch.setitem(WEIGHTS, "default", weights)
    train, test, labels, _ = wine
    default = TabICLLinearClassifier(trees=False, n_estimators=1).fit(train, labels)
    expected = TabICLLinearClassifier(checkpoint, n_estimators=1).fit(train, labels)
    np.testing.assert_array_equal(default.predict_proba(test), expected.predict_proba(test))

"""What `diagnose` says about states agrees with the states, and it changes none of them."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from contract.variants import make
from sklearn.exceptions import NotFittedError
from tolerances import CONTRACT, RMS

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.analysis.diagnosis_figure import LABELS, diagnosis_figure
from tabicl_linear.analysis.state_drift import drift
from tabicl_linear.analysis.states import states_at
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator.members.ensemble import Encoded, as_seen
from tabicl_linear.kernels.state import tensors

COLUMNS = ["member", "digit", "layer", "head", "measure", "value"]
OF_HEADS = {"norm", "effective_rank", "cosine_half"}
OF_LAYERS = {"write_rate", "kept"}


def table(rows=40, seed=0, classes=3):
    """Three columns, one of them text."""
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % classes
    frame = pd.DataFrame(rng.normal(size=(rows, 2)) + y[:, None], columns=list("uv"))
    frame["text"] = np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)]
    return frame, np.array(list("abcdefghijkl"))[y]


def fitted(model, classes=3, **options):
    options = {"n_estimators": 3, "device": "cpu"} | options
    return TabICLLinearClassifier(model, **options).fit(*table(classes=classes))


def measure(diagnosis, name):
    return diagnosis[diagnosis["measure"] == name]


@pytest.mark.parametrize(
    ("mixer", "axis", "measures"),
    [
        ("DeltaNet", "row", OF_HEADS | {"write_rate"}),
        ("DeltaNet", "ridge_cells", OF_HEADS | {"write_rate"}),
        ("GatedDeltaNet", "row", OF_HEADS | {"write_rate", "kept"}),
        ("GatedLinearAttention", "row", OF_HEADS | {"kept"}),
        ("LinearAttention", "row", OF_HEADS),
        ("Ridge", "row", OF_HEADS),
        ("Softmax", "row", set()),
    ],
)
def test_the_table_has_what_the_model_has(mixer, axis, measures):
    result = fitted(make(mixer, "final_state", axis=axis)).diagnose(*table())
    assert list(result) == COLUMNS
    assert set(result["measure"]) == measures | {"order_spread"}
    assert result["value"].notna().all()
    assert not result.duplicated(COLUMNS[:-1]).any()
    assert set(result["member"]) == {1, 2, 3}
    for name in measures:
        rows = measure(result, name)
        assert set(rows["layer"]) == {1, 2}
        assert rows["head"].isna().all() if name in OF_LAYERS else set(rows["head"]) == {1, 2}
        assert len(rows) == 3 * 2 * (1 if name in OF_LAYERS else 2)
    spread = measure(result, "order_spread")
    assert spread["layer"].isna().all()
    assert len(spread) == 3


@pytest.mark.parametrize("rows_per_batch", [None, 1])
@pytest.mark.parametrize("axis", ["row", "cells"])
def test_values_are_those_of_the_states(axis, rows_per_batch):
    """Members that were fitted together, and one at a time."""
    x, y = table()
    model = make("DeltaNet", "final_state", axis=axis)
    classifier = fitted(model, rows_per_batch=rows_per_batch)
    result, ensemble = classifier.diagnose(x, y), classifier.ensemble_
    assert ensemble.group_size == (3 if rows_per_batch is None else 1)
    matrix, codes = classifier.preprocessor_.transform(x), np.unique(y, return_inverse=True)[1]
    encoded = Encoded(matrix, codes, classifier.preprocessor_, classifier.classes_)
    rows, labels = as_seen(ensemble, ensemble.views, encoded)
    mask = np.stack([encoded.preprocessor.categorical[v.columns] for v in ensemble.views])
    states = states_at(model, rows, labels, [20, 40], categorical=torch.from_numpy(mask))
    expected = drift(states, num_tasks=3)
    expected = expected[expected["form"] == "state"].groupby(["length", "task", "layer", "head"])
    expected = expected[["frobenius", "effective_rank", "cosine"]].mean()
    for name, length, column in (
        ("norm", 40, "frobenius"),
        ("effective_rank", 40, "effective_rank"),
        ("cosine_half", 20, "cosine"),
    ):
        told = measure(result, name)
        truth, tolerance = expected.loc[length][column], RMS[torch.float64]
        np.testing.assert_allclose(told["value"], truth, rtol=tolerance, atol=tolerance)
    assert measure(result, "cosine_half")["value"].abs().max() < 1


def test_states_that_are_sums_do_not_depend_on_the_order_and_others_do():
    def spread(mixer):
        result = fitted(make(mixer, "final_state")).diagnose(*table())
        return measure(result, "order_spread")["value"]

    assert spread("LinearAttention").max() < CONTRACT
    assert spread("DeltaNet").min() > 1e-6


def test_each_digit_of_many_classes_is_looked_into():
    result = fitted(make("DeltaNet", "final_state"), classes=6).diagnose(*table(classes=6))
    assert set(result["digit"]) == {1, 2, 3, 4}
    assert not result.duplicated(COLUMNS[:-1]).any()


def test_nothing_changes():
    classifier, queries = fitted(make("DeltaNet", "final_state")), table(20, seed=1)[0]
    before = classifier.predict_proba(queries)
    states = [tensor.clone() for tensor in tensors(classifier.ensemble_.states)]
    attributes, generator = set(vars(classifier)), torch.get_rng_state()
    first, again = (classifier.diagnose(*table()) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert torch.equal(generator, torch.get_rng_state())
    assert set(vars(classifier)) == attributes
    np.testing.assert_array_equal(classifier.predict_proba(queries), before)
    for a, b in zip(tensors(classifier.ensemble_.states), states, strict=True):
        assert torch.equal(a, b) or not a.isfinite().all()


def test_refined_states_are_looked_into_as_they_are():
    model = make("DeltaNet", "final_state")
    plain, refined = (fitted(model, refine=refine).diagnose(*table()) for refine in (False, True))
    norms = [measure(result, "norm")["value"].to_numpy() for result in (plain, refined)]
    assert np.abs(norms[0] - norms[1]).max() > 1e-6
    cosines = [measure(result, "cosine_half")["value"] for result in (plain, refined)]
    np.testing.assert_allclose(*cosines, rtol=RMS[torch.float64])


def test_what_cannot_be_looked_into_is_refused():
    classifier = TabICLLinearClassifier(make("DeltaNet", "final_state"), n_estimators=1)
    x, y = table()
    with pytest.raises(NotFittedError):
        classifier.diagnose(x, y)
    classifier.fit(x, y)
    with pytest.raises(DataError, match="9 rows: give at least 10"):
        classifier.diagnose(x[:9], y[:9])
    with pytest.raises(ConfigError, match="row_orders=1: give at least 2"):
        classifier.diagnose(x, y, row_orders=1)
    with pytest.raises(DataError, match="missing 'text'"):
        classifier.diagnose(x.drop(columns="text"), y)
    with pytest.raises(DataError, match=r"holds 'new'.*: leave out rows of other classes\."):
        classifier.diagnose(x, np.where(y == "a", "new", y))
    with pytest.raises(ValueError, match="inconsistent"):
        classifier.diagnose(x, y[:-1])


@pytest.mark.parametrize("classes", [3, 6])
def test_blocks_are_refused_with_the_remedy(classes):
    model = make("DeltaNet", "final_state")
    model.provenance = {"trained_rows": [4, 25]}
    classifier = fitted(model, classes=classes, long_context="blocks")
    assert classifier.long_context_.choice == "blocks"
    with pytest.raises(ConfigError, match=r"read in 2 blocks .*: fit with long_context='full'\.$"):
        classifier.diagnose(*table(classes=classes))
    fitted(model, classes=classes, long_context="full").diagnose(*table(classes=classes))


def test_the_figure_has_a_panel_for_each_measure():
    result = fitted(make("GatedDeltaNet", "final_state")).diagnose(*table())
    axes = diagnosis_figure(result).axes
    assert [ax.get_title() for ax in axes] == list(LABELS.values())
    assert [ax.get_xlabel() for ax in axes] == ["layer"] * 5 + ["member"]
    softmax = fitted(make("Softmax", "final_state")).diagnose(*table())
    assert [ax.get_title() for ax in diagnosis_figure(softmax).axes] == [LABELS["order_spread"]]


def test_the_figure_says_which_extra_is_missing(monkeypatch):
    result = fitted(make("DeltaNet", "final_state"), n_estimators=1).diagnose(*table())
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"matplotlib.*tabicl-linear\[train\]"):
        diagnosis_figure(result)

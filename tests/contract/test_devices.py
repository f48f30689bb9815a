"""Nothing is made on another device than the inputs', and the results there are those of the CPU.

Without another device at hand: models and inputs are on the one of `elsewhere.py`, where tensors
of two devices do not meet; and every function that makes a tensor must be told where.
"""

import copy
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contract.elsewhere import DEVICE, Elsewhere, There
from contract.variants import FEW, READOUTS, across_axes, make, served, task
from ridge_inputs.ridge_models import untrained
from tolerances import RMS, assert_close
from torch.overrides import TorchFunctionMode

from tabicl_linear import recipe
from tabicl_linear.analysis import OracleOptions, optimise_states
from tabicl_linear.estimator.learners.closed_form import ClosedForm
from tabicl_linear.overlays import expanded, laid_over
from tools.gpu_check.training import DEFAULTS

MAKERS = {
    getattr(torch, name): name
    for name in (
        "arange",
        "as_tensor",
        "empty",
        "empty_strided",
        "eye",
        "from_numpy",
        "full",
        "linspace",
        "logspace",
        "normal",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "scalar_tensor",
        "tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
    )
}
INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


class Told(TorchFunctionMode):
    """Collects calls that make a tensor wherever the default is."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in MAKERS and kwargs.get("device") is None:
            self.silent.append(f"torch.{MAKERS[func]}{args}")
        if func in INDEXING:
            parts = args[1] if isinstance(args[1], tuple) else (args[1],)
            self.silent += [f"index {part}" for part in parts if isinstance(part, list)]
        return func(*args, **kwargs)


# What no file of configs/ has. The files, which follow, run every other line and branch that all
# readouts, strategies and axes would run.
FIRST = {mixer: readout for mixer, readout in reversed(served())}
LAYOUTS = [(mixer, FIRST[mixer], "row") for mixer in FIRST if "+" in mixer]
LAYOUTS += {row[2]: row for row in reversed(across_axes()) if row[0] == "DeltaNet"}.values()
LAYOUTS += [("DeltaNet", "causal", "row"), ("DeltaNet", "bidirectional", "cells")]


def passes(model, batch, rows_per_chunk=11):
    """Logits, losses and gradients of everything that a model does with a batch."""
    num_context = batch.num_context
    x, y = batch.x[:, :num_context], batch.y[:, :num_context]
    state = model.fit(x, y, categorical=batch.categorical, rows_per_chunk=rows_per_chunk)
    results = {"logits": model.predict(state, batch.x[:, num_context:])}
    if model.is_causal:
        state = model.fit(batch.x[:, num_context:], batch.y[:, num_context:], state=state)
        results["logits of more rows"] = model.predict(state, batch.x[:, num_context:])
    results["losses"] = model.train_pass(batch)[0]
    results["losses"].sum().backward()
    return results | {
        f"gradient of {name}": parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def check(results, *values) -> Counter[str]:
    """Compare results of values with those of the same values elsewhere; what waited for some."""
    truth = results(*copy.deepcopy(values))
    with Elsewhere() as elsewhere, Told() as told:
        result = results(*(value.to(DEVICE) for value in values))
    assert told.silent == []
    assert result.keys() == truth.keys()
    for name, value in truth.items():
        assert isinstance(result[name], There), name
        assert_close(result[name].held, value, RMS[value.dtype], name)
    return elsewhere.waits


@pytest.mark.parametrize(("mixer", "readout", "axis"), LAYOUTS)
def test_fit_predict_and_training_compute_where_they_are_told(mixer, readout, axis):
    check(passes, make(mixer, readout, axis=axis), task())


CONFIGS = Path(__file__).parents[2] / "configs"
OF_DATA = ("learner", "length", "prior")
"""Folders of overlays that do not change models."""
FILES = [path for path in sorted(CONFIGS.glob("*.yaml")) if path.stem != "smoke"]
FILES += [path for path in sorted(CONFIGS.glob("*/*.yaml")) if path.parent.name not in OF_DATA]
# What an overlay is laid over where DeltaNet does not have what it sets.
BASES = {"mimetic": "gla", "mimetic_learning": "gla", "causal_frobenius": "linear_causal"}


def recipe_of(path):
    """What a config makes of a small model; an overlay, laid over one.

    Of one layer, unless layers start from the one below: others run the same lines.
    """
    sections = dict(DEFAULTS)
    base = CONFIGS / f"{BASES.get(path.stem, 'deltanet')}.yaml"
    for file in ([] if path.parent == CONFIGS else [base]) + [path, CONFIGS / "smoke.yaml"]:
        sections = laid_over(sections, expanded(file).get("model", {}))
    if sections["architecture"].get("initial_states") != "woven":
        sections["architecture"]["depth"] = 1
    return recipe.extract(sections)


# Many overlays are what makes a model with a file of its own.
DIFFERENT = {repr(recipe_of(path)): path for path in FILES}.values()


@pytest.mark.parametrize("path", DIFFERENT, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_so_do_all_configs_and_overlays(path):
    check(passes, recipe.build(recipe_of(path), backend="torch").double(), task())


@pytest.mark.parametrize("rows", [6, 40])
@pytest.mark.parametrize("calibration", ["confidence", "logistic"])
@pytest.mark.parametrize("form", ["leave_one_out", "earlier_rows"])
def test_so_do_all_ridge_recipes(form, calibration, rows):
    """Of sets side by side and apart, with tasks that are told the class shares alone."""
    apart = ({"values": 1.0, "trees": 0.5}, {"tanh": 1.0, "cosine": 1.0})
    options = {"form": form, "calibration": calibration, "sets": apart}
    model = untrained(readout=READOUTS["causal"], ridge=replace(FEW, **options))
    check(passes, model, task(rows + 5, num_context=rows))


@pytest.mark.parametrize("calibration", ["confidence", "logistic"])
@pytest.mark.parametrize("form", ["leave_one_out", "earlier_rows"])
def test_values_are_waited_for_as_often_with_more_rows(form, calibration):
    """Neither blocks of rows, nor steps of a search, nor factorisations wait, one by one."""
    options = {"form": form, "calibration": calibration}
    model = untrained(readout=READOUTS["causal"], ridge=replace(FEW, **options))

    def fitted(model, batch):
        state = model.fit(batch.x[:, :-5], batch.y[:, :-5], categorical=batch.categorical)
        return {"logits": model.predict(state, batch.x[:, -5:])}

    few, many = (
        check(fitted, copy.deepcopy(model), task(rows + 5, num_context=rows)) for rows in (40, 400)
    )
    assert few == many
    assert few["_linalg_check_errors"] == 0
    assert few.total() <= 8


@pytest.mark.parametrize("axis", ["row", *sorted({axis for _, _, axis in across_axes()})])
def test_nothing_is_sent_there_twice(axis):
    served_there = {a: r for mixer, r, a in across_axes() if mixer == "DeltaNet"}
    model, batch = make("DeltaNet", served_there.get(axis, "causal"), axis=axis), task()
    with Elsewhere() as elsewhere:
        model, batch = model.to(DEVICE), batch.to(DEVICE)
        for most in (4, 0):
            before = elsewhere.sent
            passes(model, batch)
            assert elsewhere.sent - before <= most


def test_so_do_the_oracle_and_the_closed_form():
    model, batch = make("DeltaNet", "final_state", axis="ridge_row"), task()

    def optimised(model, batch):
        x, y = batch.x[:, :20], batch.y[:, :20]
        state = optimise_states(model, model.fit(x, y), x, y, OracleOptions(max_epochs=1))
        return {"logits": model.predict(state, batch.x[:, 20:])}

    check(optimised, model, batch)
    learner = ClosedForm(FEW, max_columns=6, num_classes=4)

    def learnt(batch):
        learner.regressions.to(batch.x.device)
        fitted = learner.fit(
            batch.x[:, :20], batch.y[:, :20], categorical=batch.categorical, rows_per_chunk=9
        )
        return {"logits": learner.predict(fitted, batch.x)}

    check(learnt, batch)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: torch.arange(3),
        lambda x: torch.zeros(3, device=None),
        lambda x: x[[0, 1]],
        lambda x: x + torch.ones(3, device="cpu"),
        lambda x: x[torch.tensor([0, 1], device="cpu")],
        lambda x: x.cpu(),
        lambda x: x * torch.zeros_like(x, device="cpu"),
    ],
)
def test_the_check_can_fail(wrong):
    with pytest.raises(AssertionError):
        check(lambda x: {"result": wrong(x).float()}, torch.ones(3))
    check(lambda x: {"result": x * torch.arange(3, device=x.device)[:2].sum()}, torch.ones(3))


def test_what_waits_is_counted():
    def waiting(x):
        x[x > 0].sum().item(), x.tolist(), x.cpu(), torch.linalg.solve(x.outer(x) + x.diag(), x)
        return {"result": x + torch.tensor([1.0, 2.0], device=x.device)}

    expected = {"index": 1, "_local_scalar_dense": 1, "_to_copy": 2, "_linalg_check_errors": 1}
    assert check(waiting, torch.ones(2)) == expected

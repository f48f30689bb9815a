"""Nothing is made on another device than the inputs'.

Without another device at hand: every function that makes a tensor must be told where.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contract.variants import FEW, READOUTS, STRATEGIES, across_axes, make, served, task
from ridge_inputs.ridge_models import untrained
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


FIRST = {mixer: readout for mixer, readout in reversed(served())}
LAYOUTS = [(*pair, "row", "comb_st") for pair in served() if pair[0] == "DeltaNet"]
LAYOUTS += [(mixer, readout, "row", "comb_st") for mixer, readout in FIRST.items()]
LAYOUTS += [(*row, "comb_st") for row in across_axes() if row[0] == "DeltaNet"]
LAYOUTS += [("DeltaNet", "causal", "row", s) for s in STRATEGIES if s != "comb_st"]


def check(call) -> None:
    with Told() as told:
        call()
    assert told.silent == []


@pytest.mark.parametrize(("mixer", "readout", "axis", "strategy"), LAYOUTS)
def test_fit_predict_and_training_make_tensors_where_they_are_told(mixer, readout, axis, strategy):
    model, batch = make(mixer, readout, strategy, axis=axis), task()
    x, y = batch.x[:, :20], batch.y[:, :20]

    def passes():
        state = model.fit(x, y, categorical=batch.categorical, rows_per_chunk=7)
        model.predict(state, batch.x[:, 20:])
        if model.is_causal:
            model.fit(batch.x[:, 20:], batch.y[:, 20:], state=state)
        model.train_pass(batch)[0].sum().backward()

    check(passes)


CONFIGS = Path(__file__).parents[2] / "configs"
OF_DATA = ("learner", "length", "prior")
"""Folders of overlays that do not change models."""
FILES = [path for path in sorted(CONFIGS.glob("*.yaml")) if path.stem != "smoke"]
FILES += [path for path in sorted(CONFIGS.glob("*/*.yaml")) if path.parent.name not in OF_DATA]
# What an overlay is laid over where DeltaNet does not have what it sets.
BASES = {"mimetic": "gla", "mimetic_learning": "gla", "causal_frobenius": "linear_causal"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_so_do_all_configs_and_overlays(path):
    sections = dict(DEFAULTS)
    base = CONFIGS / f"{BASES.get(path.stem, 'deltanet')}.yaml"
    for file in ([] if path.parent == CONFIGS else [base]) + [path, CONFIGS / "smoke.yaml"]:
        sections = laid_over(sections, expanded(file).get("model", {}))
    told = sections["mixer"].get("init_args", {})
    if told.get("decay_constant") is not None:  # as the command line reads a whole number
        told["decay_constant"] = float(told["decay_constant"])
    model = recipe.build(recipe.extract(sections))
    batch = task()
    batch = batch._replace(x=batch.x.float())
    x, y = batch.x[:, :20], batch.y[:, :20]

    def passes():
        state = model.fit(x, y, categorical=batch.categorical, rows_per_chunk=11)
        model.predict(state, batch.x[:, 20:])
        model.train_pass(batch)[0].sum().backward()

    check(passes)


@pytest.mark.parametrize("rows", [6, 80])
@pytest.mark.parametrize("calibration", ["confidence", "logistic"])
@pytest.mark.parametrize("form", ["leave_one_out", "earlier_rows"])
def test_so_do_all_ridge_recipes(form, calibration, rows):
    """Of sets side by side and apart, with tasks that are told the class shares alone."""
    apart = ({"values": 1.0, "trees": 0.5}, {"tanh": 1.0, "cosine": 1.0})
    options = {"form": form, "calibration": calibration, "sets": apart, "dropout": 0.5}
    model = untrained(readout=READOUTS["causal"], ridge=replace(FEW, **options))
    batch = task(rows + 5, num_context=rows)

    def passes():
        state = model.fit(batch.x[:, :rows], batch.y[:, :rows], categorical=batch.categorical)
        model.predict(state, batch.x[:, rows:])
        model.train_pass(batch)

    check(passes)


def test_so_do_the_oracle_and_the_closed_form():
    model, batch = make("DeltaNet", "final_state", axis="ridge_row"), task()
    x, y = batch.x[:, :20], batch.y[:, :20]
    state = model.fit(x, y)
    check(lambda: optimise_states(model, state, x, y, OracleOptions(max_epochs=1)))
    learner = ClosedForm(FEW, max_columns=6, num_classes=4)
    told = {"categorical": batch.categorical, "rows_per_chunk": 9}
    check(lambda: learner.predict(learner.fit(x, y, **told), batch.x))


def test_the_check_can_fail():
    for wrong in (
        lambda: torch.arange(3),
        lambda: torch.zeros(3, device=None),
        lambda: torch.ones(4)[[0, 1]],
    ):
        with pytest.raises(AssertionError):
            check(wrong)
    check(lambda: torch.arange(3, device="cpu")[:2])

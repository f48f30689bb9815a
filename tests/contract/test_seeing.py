"""Every mixer and readout of the package, and one of somebody else, can be looked at."""

import re
from functools import cache

import pytest
import torch
from contract.fixed_decay import FixedDecay
from contract.variants import MIXERS, make, shared, task, varied
from tolerances import CONTRACT, assert_close

from tabicl_linear.analysis import gates, matrices, record_streams
from tabicl_linear.analysis.inspection import ANALYSES, Plan, inspect_model
from tabicl_linear.analysis.probe_tasks import Probe
from tabicl_linear.callbacks.cosine_drift import CosineDrift
from tabicl_linear.callbacks.length_probe import LengthProbe
from tabicl_linear.callbacks.state_norms import StateNorms
from tabicl_linear.callbacks.write_rates import WriteRates
from tabicl_linear.kernels.state import GramState, MatrixState, tensors
from tabicl_linear.mixers.delta import DeltaNet

OWN = {**MIXERS, "FixedDecay": FixedDecay}
PAIRS = [*varied(), *(("FixedDecay", readout) for readout in ("causal", "final_state"))]
pairs = pytest.mark.parametrize(("mixer", "readout"), PAIRS)
AXES = [(*pair, "row") for pair in PAIRS]
AXES += [("DeltaNet", "causal", axis) for axis in ("two_axis", "cells", "ridge_earlier_cells")]
AXES += [
    ("GatedLinearAttention", "bidirectional", "cells"),
    ("DeltaNet", "final_state", "ridge_row"),
]
axes = pytest.mark.parametrize(("mixer", "readout", "axis"), AXES)
# What is computed from states and streams, which every pair has: on every mixer and every readout.
looks = pytest.mark.parametrize(
    ("mixer", "readout", "axis"),
    [row for row in AXES if "final_state" in row or "DeltaNet" in row or row[2] != "row"],
)
GATES = {
    "DeltaNet": {"write_rate"},
    "GatedDeltaNet": {"write_rate", "kept"},
    "GatedLinearAttention": {"kept"},
    "Mamba2": {"write_rate", "kept"},
    "KimiDelta": {"write_rate", "kept"},
    "DeltaProduct": {"write_rate"},
    "FixedDecay": {"kept"},
    "LinearAttention": set(),
    "Ridge": set(),
    "Softmax": set(),
}
DRAWN = ("DeltaNet", "GatedDeltaNet", "GatedLinearAttention", "LinearAttention", "Softmax")
"""A mixer for each set of gates with matrices, and one without; drawing takes long."""
CALLBACKS = [
    lambda: WriteRates(1, 2, length=20),
    lambda: StateNorms(1, 2, length=20),
    lambda: CosineDrift(1, 2, lengths=[8, 20]),
    lambda: LengthProbe(1, 2, lengths=[8, 20]),
]


@cache
def probe() -> Probe:
    """Two tasks that are long enough for the references of the callbacks."""
    batch = task(rows=1030, num_context=1000)
    return Probe(batch.x, batch.y, batch.categorical, 30, 20)


def shared_or_own(mixer, readout, axis="row"):
    if mixer in MIXERS:
        return shared(mixer, readout, axis=axis)
    return make(mixer, readout, axis=axis, mixers=OWN)


def kind(mixer: str) -> str:
    return mixer.partition("+")[0]


def gates_of(mixer, model):
    """Those of the table; a mixer that is new has those of its streams, without a line here."""
    if kind(mixer) in GATES:
        return GATES[kind(mixer)]
    with record_streams(model) as recorded:
        fitted(model)
    streams = recorded.layers[0]
    by_name = {"write_rate": streams.beta, "kept": streams.log_decay}
    return {name for name, values in by_name.items() if values is not None}


@torch.no_grad()
def fitted(model):
    batch = task()
    return model.fit(batch.x[:, :20], batch.y[:, :20])


@axes
@pytest.mark.parametrize("size", [None, 7])
@torch.no_grad()
def test_streams_are_those_that_the_state_is_made_of(mixer, readout, axis, size):
    """Folding what was recorded gives the fitted state: nothing is missing, doubled or moved."""
    model, batch = shared_or_own(mixer, readout, axis), task()
    with record_streams(model) as recorded:
        state = model.fit(batch.x[:, :20], batch.y[:, :20], rows_per_chunk=size)
    for block, streams, layer, start in zip(
        model.backbone.layers(), recorded.layers, state.layers, starts(model), strict=True
    ):
        sequences = next(tensors(layer.rule_state)).shape[0]
        directions = 2 if readout == "bidirectional" else 1
        assert streams.k.shape[:2] == (sequences * directions, 20)
        if readout.startswith("woven"):
            continue  # starts from the layer below
        initial = None
        if start is not None:
            initial = type(layer.rule_state)(start.expand(sequences * directions, *start.shape))
        folded = block.mixer.rule.fold(streams, initial)
        for ours, kept in zip(tensors(folded), tensors(layer.rule_state), strict=True):
            if readout == "bidirectional":
                ours = ours.unflatten(0, (sequences, 2)).mean(1)
            assert_close(ours, kept, CONTRACT)


def starts(model):
    """Learned initial states, None where layers start from zero."""
    learned = list(model.backbone.learned)
    return learned or [None] * len(model.backbone.layers())


@pairs
def test_recording_changes_nothing_and_leaves_nothing(mixer, readout):
    model, batch = shared_or_own(mixer, readout), task()
    x, y = batch.x[:, :20], batch.y[:, :20]
    plain = model.fit(x, y)
    with record_streams(model, keep=gates):
        seen = model.fit(x, y)
    for one, two in zip(tensors(plain), tensors(seen), strict=True):
        assert torch.equal(one.nan_to_num(), two.nan_to_num())
    assert not any(block.mixer._streams_hooks for block in model.backbone.layers())


@looks
def test_matrices_are_what_queries_read(mixer, readout, axis):
    """Plain reads of the state are products with them."""
    model = shared_or_own(mixer, readout, axis)
    state = fitted(model)
    result = matrices(model, state)
    has_matrix = isinstance(state.layers[0].rule_state, MatrixState | GramState)
    assert len(result) == (2 if has_matrix else 0)
    assert has_matrix or kind(mixer) not in {*GATES} - {"Softmax"}
    for layer, S in result.items():
        q = torch.randn(len(S), 3, S.shape[1], S.shape[3], dtype=torch.float64)
        rule = model.backbone.layers()[layer - 1].mixer.rule
        read = rule.read(q, state.layers[layer - 1].rule_state)
        assert_close(torch.einsum("shvk,sthk->sthv", S, q), read, CONTRACT)


@looks
def test_every_callback_looks_and_says_nothing_of_what_is_not_there(mixer, readout, axis):
    model = shared_or_own(mixer, readout, axis)
    its_gates, has_matrices = gates_of(mixer, model), bool(matrices(model, fitted(model)))
    expected = [bool(its_gates), has_matrices, has_matrices, True]
    for make_callback, has in zip(CALLBACKS, expected, strict=True):
        callback = make_callback()
        with torch.no_grad():
            table = callback.look(model, probe())
        assert (table is not None) == has, callback.name
        if table is None:
            continue
        assert len(table)
        scalars = callback.scalars(table)
        assert scalars
        assert all(re.fullmatch(r"\w+(/\w+)?/(layer_\d\d|rows_\d{6})", tag) for tag in scalars)
        if (readout, axis) == ("final_state", "row") and mixer in DRAWN:
            pictures = callback.pictures(table, probe())
            assert pictures
            assert not {*pictures} & {*scalars}
        if isinstance(callback, WriteRates):
            assert set(table["gate"]) == its_gates
            assert set(table["layer"]) == {1, 2}


@pytest.mark.parametrize("mixer", ["DeltaNet", "DeltaProduct", "Mamba2", "Ridge", "Softmax"])
def test_every_analysis_runs_or_says_why_not(mixer):
    readout = "final_state"
    model = make(mixer, readout)
    result = inspect_model("it", model, Plan(probe(), [8, 20, 40], 20))
    assert {*result.tables, *result.absent} == set(ANALYSES)
    assert all(len(table) for table in result.tables.values())
    absent = {
        "DeltaNet": set(),
        "DeltaProduct": set(),
        "Mamba2": set(),
        "Ridge": {"write_rates", "contribution"},
        "Softmax": {"write_rates", "contribution", "drift", "ridge_target"},
    }
    assert set(result.absent) == absent[mixer]


def test_delta_rules_erase_and_no_other():
    assert DeltaNet(8, 2).rule.erases
    assert not any(OWN[name](32, 2).rule.erases for name in GATES if "Delta" not in name)

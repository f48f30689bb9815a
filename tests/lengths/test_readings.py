"""What is read on the way is what a fit of that prefix gives, and every row is written once."""

import itertools
import time

import pytest
import torch
from contract.variants import make, served, task
from tolerances import RMS, assert_close

from tabicl_linear.analysis import OracleOptions, optimise_states
from tabicl_linear.learner import BlockEnsemble
from tabicl_linear.lengths.datasets import LengthDataset
from tabicl_linear.lengths.readings import read_blocks, read_oracle, read_prefixes

LENGTHS = (7, 20, 41)
QUERIES = 5
CAUSAL = [(*pair, "row") for pair in served() if pair[1].startswith("causal")]
CAUSAL = [row for row in CAUSAL if "mimetic" not in row[0]]
CAUSAL += [("DeltaNet", "causal", axis) for axis in ("cells", "two_axis")]
OTHERS = [("DeltaNet", "final_state", "row"), ("Ridge", "final_state", "row")]
OTHERS += [("GatedLinearAttention", "bidirectional", "row"), ("DeltaNet", "woven_causal", "row")]
OTHERS += [("Softmax", "final_state", "row"), ("DeltaNet", "final_state", "ridge_cells")]


def dataset():
    batch = task(LENGTHS[-1] + QUERIES, num_context=LENGTHS[-1], batch=1)
    return LengthDataset(batch.x, batch.y, batch.categorical, QUERIES, "")


def plain(model, data, length, by=None):
    """Logits of an ordinary fit of a prefix, under statistics of its own or given ones."""
    kinds = data.categorical if by is None else None
    rows = data.x[:, :length], data.y[:, :length]
    return model.predict(model.fit(*rows, categorical=kinds, statistics=by), data.queries)[0]


@pytest.mark.parametrize(("mixer", "readout", "axis"), CAUSAL)
@torch.no_grad()
def test_readings_on_the_way_are_those_of_fits_under_the_same_statistics(mixer, readout, axis):
    model, data = make(mixer, readout, axis=axis), dataset()
    of_all = data.x[:, : LENGTHS[-1]], data.y[:, : LENGTHS[-1]], data.categorical
    by = model.statistics(*of_all)
    readings = list(read_prefixes(model, data, LENGTHS))
    assert [reading.num_rows for reading in readings] == list(LENGTHS)
    for reading in readings:
        expected = plain(model, data, reading.num_rows, by)
        assert_close(reading.logits, expected, RMS[torch.float64])
    last = plain(model, data, LENGTHS[-1])
    assert_close(readings[-1].logits, last, RMS[torch.float64])


@torch.no_grad()
def test_statistics_of_the_first_rows_are_those_of_a_stream():
    model, data = make("DeltaNet", "causal", axis="ridge_earlier_row"), dataset()
    state = None
    start = 0
    for reading in read_prefixes(model, data, LENGTHS, "first"):
        rows = data.x[:, start : reading.num_rows], data.y[:, start : reading.num_rows]
        kinds = data.categorical if state is None else None
        state = model.fit(*rows, categorical=kinds, state=state)
        expected = model.predict(state, data.queries)[0]
        assert_close(reading.logits, expected, RMS[torch.float64])
        start = reading.num_rows


@torch.no_grad()
def test_the_last_reading_of_a_model_with_ridge_inputs_is_that_of_a_plain_fit():
    """Trees ask about rows of the first piece, which must not be those of the shortest length."""
    model, data = make("DeltaNet", "causal", axis="ridge_earlier_row"), dataset()
    *_, last = read_prefixes(model, data, LENGTHS, "longest")
    assert_close(last.logits, plain(model, data, LENGTHS[-1]), RMS[torch.float64])


@pytest.mark.parametrize(
    ("mixer", "readout", "axis", "statistics"),
    [(*row, "longest") for row in OTHERS] + [("DeltaNet", "causal", "row", "each")],
)
@torch.no_grad()
def test_other_models_are_fitted_anew_at_each_length(mixer, readout, axis, statistics):
    model, data = make(mixer, readout, axis=axis), dataset()
    for reading in read_prefixes(model, data, LENGTHS, statistics):
        assert torch.equal(reading.logits, plain(model, data, reading.num_rows))


@pytest.mark.parametrize(("readout", "written"), [("causal", 41), ("final_state", 7 + 20 + 41)])
@torch.no_grad()
def test_a_causal_model_writes_every_row_once(readout, written):
    model, rows = make("DeltaNet", readout), []
    last = model.backbone.layers()[-1]
    last.mixer_norm.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0].shape[1]))
    list(read_prefixes(model, dataset(), LENGTHS))
    assert sum(rows) == written + len(LENGTHS) * QUERIES


@torch.no_grad()
def test_blocks_are_those_of_the_ensemble():
    model, data = make("DeltaNet", "final_state"), dataset()
    for reading in read_blocks(model, data, LENGTHS, 10):
        n = reading.num_rows
        ensemble = BlockEnsemble(model, 10)
        state = ensemble.fit(data.x[:, :n], data.y[:, :n], categorical=data.categorical)
        expected = ensemble.predict(state, data.queries)[0]
        assert_close(reading.logits, expected, RMS[torch.float64])


def test_many_blocks_take_no_more_rows_at_a_time(monkeypatch):
    model, data, most = make("DeltaNet", "causal"), dataset(), 0
    monkeypatch.setattr("tabicl_linear.lengths.readings.chunk_rows", lambda device: 16)

    def watch(_, inputs):
        nonlocal most
        most = max(most, inputs[0].shape[0] * inputs[0].shape[1])

    model.backbone.layers()[0].mixer_norm.register_forward_pre_hook(watch)
    with torch.no_grad():
        list(read_blocks(model, data, LENGTHS, 10))
    assert 0 < most <= 16 + 5


def test_the_oracle_is_read_at_one_length():
    model, data = make("DeltaNet", "causal"), dataset()
    options = OracleOptions(max_epochs=2)
    reading = read_oracle(model, data, 20, options)
    x, y = data.x[:, :20], data.y[:, :20]
    with torch.no_grad():
        state = model.fit(x, y, categorical=data.categorical)
        better = optimise_states(model, state, x, y, options)
        assert torch.equal(reading.logits, model.predict(better, data.queries)[0])


@torch.no_grad()
def test_seconds_add_up_over_the_prefixes():
    readings = list(read_prefixes(make("DeltaNet", "causal"), dataset(), LENGTHS))
    seconds = [reading.fit_seconds for reading in readings]
    assert 0 < seconds[0] < seconds[1] < seconds[2]
    assert all(reading.predict_seconds > 0 for reading in readings)


@torch.no_grad()
def test_seconds_leave_out_the_reads_in_between(monkeypatch):
    """A clock that goes on by a second whenever it is asked."""
    seconds = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    readings = list(read_prefixes(make("DeltaNet", "causal"), dataset(), LENGTHS))
    assert [reading.fit_seconds for reading in readings] == [1, 2, 3]
    assert [reading.predict_seconds for reading in readings] == [1, 1, 1]

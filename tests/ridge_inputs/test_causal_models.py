"""Models that read causally, with rows predicted from earlier rows: trained, fitted, extended."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from contract.variants import AXES, EARLIER, SMALL, make, task
from ridge_inputs.ridge_models import with_noise_
from tolerances import CONTRACT, RMS, assert_close, relative_rms

from tabicl_linear.embedding.statistics import context_statistics
from tabicl_linear.errors import ConfigError, UnsupportedReadout
from tabicl_linear.kernels.state import map_tensors, num_bytes, tensors
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import Causal, FinalState
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT
from tabicl_linear.ridge_inputs.recent_rows import MOST
from tabicl_linear.strategies.combined import Combined
from tabicl_linear.strategies.interleaved import Interleaved
from tabicl_linear.tables import Tables

EXACT = RMS[torch.float64]
MOVES = 1e-6
AXIS = "ridge_earlier_row"
LOGISTIC = "ridge_earlier_logistic"
axes = pytest.mark.parametrize("axis", [AXIS, "ridge_earlier_cells", LOGISTIC])
strategies = pytest.mark.parametrize("strategy", ["comb_st", "comb_mt", "int_st", "int_mt"])


def untrained(strategy=None, readout=Causal, **options):
    """A float64 model with the weights that training starts from."""
    architecture = replace(SMALL, ridge_inputs=replace(EARLIER, **options))
    torch.manual_seed(0)
    return InContextModel.from_parts(
        DeltaNet, readout, strategy=strategy or Combined(), architecture=architecture
    ).double()


def noisy(strategy, **options):
    """A model all of whose parameters matter."""
    return with_noise_(untrained(strategy, **options))


def fitted(model, batch, rows=None, **options):
    """The state of the context, or of its first rows."""
    rows = batch.num_context if rows is None else rows
    x, y = batch.x[:, :rows], batch.y[:, :rows]
    return model.fit(x, y, categorical=batch.categorical, **options)


def known_of(model, batch):
    """What ridge inputs say about all rows in training."""
    rows = slice(None), slice(None, batch.num_context)
    statistics = context_statistics(
        batch.x[rows], batch.y[rows], batch.categorical, num_features=None
    )
    tables = Tables(model.embedding, model.strategy, model.ridge, statistics)
    return tables.training_predictions(batch)


@pytest.mark.parametrize("form", ["earlier_rows", "leave_one_out"])
@pytest.mark.parametrize("strategy", [Combined, Interleaved])
def test_multi_target_training_needs_rows_predicted_from_earlier_ones(strategy, form):
    architecture = replace(SMALL, ridge_inputs=replace(EARLIER, form=form))
    build = partial(InContextModel.from_parts, DeltaNet, strategy=strategy("multi"))
    if form == "earlier_rows":
        assert build(Causal, architecture=architecture).is_causal
        with pytest.raises(ConfigError, match=r"readouts\.Causal"):
            build(FinalState, architecture=architecture)
        return
    with pytest.raises(ConfigError, match=r"form=leave_one_out .* to earlier_rows") as refusal:
        build(Causal, architecture=architecture)
    assert "\n" not in str(refusal.value)


@axes
def test_interleaved_multi_target_training_sees_what_an_extended_state_sees(axis):
    """Query row by query row, across a solution at 32 rows."""
    batch = task(40, num_context=25)
    model = make("DeltaNet", "causal", "int_mt", axis=axis)
    state, expected = fitted(model, batch), []
    for i in range(25, 40):
        row = slice(None), slice(i, i + 1)
        expected.append(model.predict(state, batch.x[row]))
        state = model.fit(batch.x[row], batch.y[row], state=state)
    logits = model(batch)
    if AXES[axis].get("mask_absent_classes"):
        assert (batch.y[:, :25].unsqueeze(-1) == torch.arange(4)).any(1).all(), "none is absent"
    assert_close(logits, torch.cat(expected, 1), EXACT)


@axes
@pytest.mark.parametrize("strategy", ["comb_st", "comb_mt", "int_st"])
def test_no_other_training_reads_a_label_of_a_query(axis, strategy):
    model, batch = make("DeltaNet", "causal", strategy, axis=axis), task(40, num_context=14)
    y = batch.y.clone()
    y[:, 14:] = (y[:, 14:] + 1) % 4
    assert torch.equal(model(batch._replace(y=y)), model(batch))


def test_what_interleaved_multi_target_training_knows_of_a_row_stands_before_it():
    model, batch = make("DeltaNet", "causal", "int_mt", axis=AXIS), task(60, num_context=20)
    predictions = known_of(model, batch)
    for row in (0, 5, 19, 20, 31, 32, 47):
        y = batch.y.clone()
        y[:, row:] = (y[:, row:] + 1) % 4
        moved = known_of(model, batch._replace(y=y))
        for mine, its in zip(
            moved.rows(slice(row + 1)), predictions.rows(slice(row + 1)), strict=True
        ):
            assert_close(mine, its, CONTRACT)
        assert relative_rms(moved.shares, predictions.shares) > MOVES


FIRST = [("int_st", first) for first in (1, 15, 16, 17, 50)]
FIRST += [(strategy, 16) for strategy in ("comb_st", "comb_mt", "int_mt")]
"""Which rows are solved anew knows no layout of tokens: every number of rows in one of them."""


@axes
@pytest.mark.parametrize(("strategy", "first"), FIRST)
def test_a_state_extended_in_pieces_is_one_extended_at_once(axis, strategy, first):
    model, batch = make("DeltaNet", "causal", strategy, axis=axis), task(90, num_context=80)
    begun = fitted(model, batch, first)
    before = map_tensors(torch.clone, begun)
    whole = model.fit(batch.x[:, first:80], batch.y[:, first:80], state=begun)
    state = begun
    for start in range(first, 80, 9):
        part = slice(None), slice(start, min(start + 9, 80))
        state = model.fit(batch.x[part], batch.y[part], state=state, rows_per_chunk=7)
    for mine, its in zip(tensors(state), tensors(whole), strict=True):
        finite = its.isfinite()
        assert torch.equal(mine.isfinite(), finite)
        if finite.any():  # a single row has no thresholds
            assert_close(mine[finite].double(), its[finite].double(), EXACT)
    queries = batch.x[:, 80:]
    assert_close(model.predict(state, queries), model.predict(whole, queries), EXACT)
    assert all(map(torch.equal, tensors(begun), tensors(before))), "the first state was changed"


@pytest.mark.parametrize("strategy", [Combined, Interleaved])
def test_an_extended_state_is_that_of_the_whole_under_the_statistics_of_the_first(strategy):
    """Without trees, which compare with rows at certain places of the first context."""
    smooth = {"values": 1.0, "tanh": 0.5, "cosine": 0.3}
    model = noisy(strategy(), sets=(smooth, {"tanh": 1.0}))
    batch = task(64, num_context=60)
    begun, x, y = fitted(model, batch, 20), batch.x[:, :60], batch.y[:, :60]
    state = model.fit(x[:, 20:], y[:, 20:], state=begun)
    whole = model.fit(x, y, statistics=begun.statistics)
    assert whole.ridge.solution.solved == state.ridge.solution.solved == 48
    for mine, its in zip(tensors(state.layers), tensors(whole.layers), strict=True):
        assert_close(mine, its, EXACT)
    for mine, its in zip(tensors(state.ridge[1:]), tensors(whole.ridge[1:]), strict=True):
        assert_close(mine, its, EXACT)
    queries = batch.x[:, 60:]
    assert_close(model.predict(state, queries), model.predict(whole, queries), EXACT)


@strategies
@pytest.mark.parametrize("axis", [AXIS, LOGISTIC])
def test_states_do_not_grow(strategy, axis):
    model = make("DeltaNet", "causal", strategy, axis=axis)
    batch = task(200, num_context=20)
    state = fitted(model, batch)
    later = model.fit(batch.x[:, 20:], batch.y[:, 20:], state=state)
    assert num_bytes(later) == num_bytes(state)
    assert later.ridge.solution.sums.rows == 200
    assert num_bytes(fitted(model, task(5, num_context=4)).ridge) == num_bytes(state.ridge)


def test_the_last_rows_are_part_of_a_state_only_where_a_class_map_is_fitted():
    batch = task(60, num_context=50)
    plain, kept = (fitted(make("DeltaNet", "causal", axis=a), batch) for a in (AXIS, LOGISTIC))
    assert plain.ridge.solution.recent is None
    assert num_bytes(kept) - num_bytes(plain) == 2 * MOST * (4 * 4 + 2)


@pytest.mark.parametrize("strategy", ["single", "multi"])
def test_an_untrained_model_with_class_maps_has_their_logits(strategy):
    model, batch = untrained(Combined(strategy), calibration="logistic"), task(60, num_context=50)
    predictions = known_of(model, batch).rows(slice(50, None))
    assert_close(model(batch), predictions.scores, CONTRACT)
    factors = (predictions.mixture.unsqueeze(-1) * predictions.shares).sum(
        2
    ) * predictions.confidence
    assert relative_rms(predictions.scores, factors) > MOVES
    assert_close(model.predict(fitted(model, batch), batch.x[:, 50:]), predictions.scores, EXACT)


@pytest.mark.parametrize("strategy", ["single", "multi"])
def test_an_untrained_model_is_the_closed_form(strategy):
    model, batch = untrained(Combined(strategy)), task(60, num_context=50)
    predictions = known_of(model, batch).rows(slice(50, None))
    expected = (predictions.mixture.unsqueeze(-1) * predictions.shares).sum(
        2
    ) * predictions.confidence
    assert_close(model(batch), expected, CONTRACT)
    assert_close(model.predict(fitted(model, batch), batch.x[:, 50:]), expected, EXACT)
    assert expected.std() > 0.05


def test_classes_that_come_with_an_extension_are_predicted_from_then_on():
    model, batch = untrained(), task(60, num_context=50)
    batch.y[:, :30] %= 3
    batch.y[:, 30:] = 3
    state, queries = fitted(model, batch, 30), batch.x[:, 50:]
    assert (model.predict(state, queries)[..., 3] == ABSENT_LOGIT).all()
    state = model.fit(batch.x[:, 30:50], batch.y[:, 30:50], state=state)
    logits = model.predict(state, queries)
    assert (logits[..., 3] > ABSENT_LOGIT).all()


def test_training_lowers_the_loss_of_rows_predicted_from_earlier_ones():
    model, batch = make("DeltaNet", "causal", "int_mt", axis=AXIS), task(60, num_context=20)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=3e-3), []
    for _ in range(15):
        loss = F.cross_entropy(model(batch).flatten(0, 1), batch.y[:, 20:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_rows_predicted_from_all_others_are_not_extended():
    model, batch = untrained(form="leave_one_out"), task()
    assert not model.is_causal
    message = r"here ridge inputs are solved from all rows.*\.form: earlier_rows\.$"
    with pytest.raises(UnsupportedReadout, match=message) as refusal:
        model.fit(batch.x[:, 20:], batch.y[:, 20:], state=fitted(model, batch))
    assert "\n" not in str(refusal.value)


def test_earlier_rows_make_no_readout_causal():
    model, batch = untrained(readout=FinalState), task()
    assert not model.is_causal
    assert_close(model(batch), model.predict(fitted(model, batch), batch.x[:, 20:]), CONTRACT)
    with pytest.raises(UnsupportedReadout, match="reads causally"):
        model.fit(batch.x[:, 20:], batch.y[:, 20:], state=fitted(model, batch))

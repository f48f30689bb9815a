"""Models with ridge inputs: what they start from, and what training moves."""

import weakref
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from contract.variants import task
from ridge_inputs.ridge_models import (
    EXACT,
    MOVES,
    OPTIONS,
    axes,
    closed_form,
    fitted,
    noisy,
    read_context,
    untrained,
)
from tolerances import CONTRACT, SEARCHED, assert_close, relative_rms

from tabicl_linear.embedding.labels import ABSENT
from tabicl_linear.kernels.state import tensors
from tabicl_linear.ridge_inputs import leave_one_out


@axes
@pytest.mark.parametrize("calibration", ["confidence", "logistic"])
def test_an_untrained_model_is_the_closed_form(axis, calibration):
    batch = task()
    # Labels that columns tell: maps fitted to random ones may be replaced (`never_reversed`).
    batch.y[:, 4:] = (batch.x[:, 4:, 0] > 0) + 2 * (batch.x[:, 4:, 4] > 0)
    batch.y[1] %= 3  # one task without the last class
    ridge = replace(OPTIONS, penalties=(0.3,), calibration=calibration)
    model = untrained(**axis, ridge=ridge)
    expected = closed_form(model, batch)
    logits = model.predict(*fitted(model, batch))
    if axis.get("mask_absent_classes"):
        assert (logits[1, :, 3] == ABSENT).all()
        logits[1, :, 3] = expected[1, :, 3]
    assert_close(logits, expected, EXACT if calibration == "confidence" else SEARCHED)
    assert expected.std() > 0.1


def test_the_network_adds_to_the_closed_form():
    batch, model = task(), untrained()
    alone = model.predict(*fitted(model, batch))
    torch.nn.init.normal_(model.head[-1].weight)
    assert relative_rms(model.predict(*fitted(model, batch)), alone) > MOVES


@axes
def test_parameters_are_those_of_two_maps(axis):
    plain = untrained(**axis, ridge=None)
    model = untrained(**axis)
    extra = dict(model.named_parameters())
    for name, _ in plain.named_parameters():
        del extra[name]
    shapes = {name: list(parameter.shape) for name, parameter in extra.items()}
    assert shapes == {
        "ridge.projection.weight": [32, 3 * 4 + 4 + 3 + 3 + 1],  # shares, prior, one each
        "ridge.projection.bias": [32],
        "ridge.skip.0.weight": [16, 3 + 1 + 1],  # each set, the mixture and the prior
        "ridge.skip.0.bias": [16],
        "ridge.skip.2.weight": [1, 16],
        "ridge.skip.2.bias": [1],
    }
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_a_model_without_them_has_nothing_of_them():
    model, batch = untrained(ridge=None), task()
    assert model.ridge is None
    assert fitted(model, batch)[0].ridge is None
    assert model.head[-1].weight.abs().sum() > 0
    assert not [name for name in model.state_dict() if "ridge" in name]


@axes
def test_gradients_reach_every_parameter_and_nothing_of_the_solution(axis):
    model, batch = noisy(**axis), task()
    batch.x.requires_grad_()
    model(batch).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    with torch.enable_grad():
        state, queries = fitted(model, batch)
        predictions = model.ridge.query(queries, state.ridge, state.statistics)
        read = read_context(model, batch)
    assert not any(part.requires_grad for part in (*tensors(state.ridge), *predictions, *read))


def test_training_from_the_closed_form_moves_head_and_skip_first():
    model, batch = untrained(), task()
    F.cross_entropy(model(batch).flatten(0, 1), batch.y[:, 20:].flatten()).backward()
    moved = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"head.2.weight", "head.2.bias", "ridge.skip.2.weight", "ridge.skip.2.bias"}


@axes
@pytest.mark.parametrize("context", [20, 90])
@pytest.mark.parametrize("size", [7, 64])
def test_chunks_are_the_whole(axis, context, size):
    """Below and above the number of features, 58 for five columns."""
    model, batch = noisy(**axis), task(context + 10, num_context=context)
    state, queries = fitted(model, batch, rows_per_chunk=context)
    pieces, _ = fitted(model, batch, rows_per_chunk=size)
    for actual, expected in zip(tensors(pieces), tensors(state), strict=True):
        if actual.is_floating_point():
            finite = expected.isfinite()
            assert_close(actual[finite], expected[finite], EXACT)
        else:
            assert torch.equal(actual, expected)
    expected = model.predict(state, queries, rows_per_chunk=10)
    assert_close(model.predict(pieces, queries, rows_per_chunk=3), expected, EXACT)


@axes
def test_training_sees_what_prediction_sees(axis):
    model, batch = noisy(**axis), task()
    assert_close(model(batch), model.predict(*fitted(model, batch)), CONTRACT)


@pytest.mark.parametrize("form", ["leave_one_out", "earlier_rows"])
def test_features_are_held_of_a_few_rows_at_a_time(monkeypatch, form):
    """Of 400 rows: fewer than there are features (64) or those sampled (40), and a chunk."""
    monkeypatch.setattr(leave_one_out, "MOST_SAMPLED", 40)
    batch, model = task(400, num_context=400), untrained(ridge=replace(OPTIONS, form=form))
    seen, most = [], 0

    def watch(module, inputs, features):
        nonlocal most
        seen.append((weakref.ref(features), features.shape[1]))
        most = max(most, sum(rows for held, rows in seen if held() is not None))

    model.ridge.features.register_forward_hook(watch)
    with torch.no_grad():
        model.fit(batch.x, batch.y, rows_per_chunk=20)
    read = sum(rows for _, rows in seen)
    assert read >= 400
    assert 20 <= most <= 64 + 20

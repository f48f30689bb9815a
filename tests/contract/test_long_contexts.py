"""A context cut into chunks gives the state of the whole: for every mixer, readout and axis."""

import weakref

import pytest
import torch
from contract.variants import across_axes, make, shared, task, varied
from tolerances import RMS, assert_close

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.state import tensors

# Mimetic initialisation is another start, not another computation.
PAIRS = [pair for pair in varied() if "mimetic" not in pair[0]]
PLAIN = [pair for pair in PAIRS if "+" not in pair[0]]
ROWS = 70
"""Context rows: several chunks of a kernel (16 to 64 tokens) and no multiple of one."""


def fitted(model, batch, rows_per_chunk):
    c = batch.num_context
    return model.fit(
        batch.x[:, :c],
        batch.y[:, :c],
        categorical=batch.categorical,
        rows_per_chunk=rows_per_chunk,
    )


def assert_same(actual, expected):
    assert [layer.num_tokens for layer in actual.layers] == [
        layer.num_tokens for layer in expected.layers
    ]
    for a, b in zip(tensors(actual), tensors(expected), strict=True):
        finite = b.isfinite()
        assert torch.equal(a.isfinite(), finite)
        assert_close(a[finite].double(), b[finite].double(), RMS[torch.float64])


def assert_chunks_change_no_state(model, batch, lengths):
    """Returns the state of all context rows at once."""
    whole = fitted(model, batch, batch.num_context)
    for rows_per_chunk in lengths:
        assert_same(fitted(model, batch, rows_per_chunk), whole)
    return whole


def assert_chunks_change_nothing(model, rows, lengths):
    """Neither in the state, nor against the training pass, which knows no chunks."""
    batch = task(rows + 3, num_context=rows, batch=1)
    whole, logits = assert_chunks_change_no_state(model, batch, lengths), model(batch)
    for rows_per_chunk in (1, 100):
        read = model.predict(whole, batch.x[:, rows:], rows_per_chunk=rows_per_chunk)
        assert_close(read, logits, RMS[torch.float64])


@pytest.mark.parametrize(("mixer", "readout"), PAIRS)
@torch.no_grad()
def test_chunks_of_any_length_give_the_state_of_the_whole(mixer, readout):
    """Also chunks of one row, and chunks longer than the context."""
    model = shared(mixer, readout)
    assert_chunks_change_nothing(model, ROWS, [33])
    assert_chunks_change_no_state(model, task(4, num_context=4, batch=1), [1, 100])


@pytest.mark.parametrize(
    ("mixer", "readout", "axis"), [*((*pair, "row") for pair in PLAIN), *across_axes()]
)
@torch.no_grad()
def test_so_do_chunks_of_rows_with_several_tokens(mixer, readout, axis):
    rows = 40 if "earlier" in axis else 12  # past the second solution from earlier rows
    assert_chunks_change_nothing(shared(mixer, readout, "int_st", axis), rows, [5])


@pytest.mark.parametrize("readout", ["causal", "final_state", "bidirectional", "woven_causal"])
def test_gradients_pass_through_chunks(readout):
    model, batch = make("DeltaNet+conv", readout), task()
    gradients = []
    for rows_per_chunk in (7, batch.num_context):
        model.zero_grad()
        state = fitted(model, batch, rows_per_chunk)
        model.predict(state, batch.x[:, batch.num_context :]).square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, expected in gradients[1].items():
        assert_close(gradients[0][name], expected, RMS[torch.float64], name)


@pytest.mark.parametrize(
    ("readout", "axis", "chunks"),
    [("causal", "row", 1), ("causal", "ridge_earlier_row", 1), ("final_state", "row", 10)],
)
def test_hidden_tokens_held_at_a_time(readout, axis, chunks):
    """One chunk in causal models, however long the context; with final states all of it."""
    model, batch = make("DeltaNet", readout, axis=axis), task(200, num_context=200)
    seen, peak = [], 0

    def watch(_, inputs):
        nonlocal peak
        seen.append(weakref.ref(inputs[0]))
        peak = max(peak, sum(tensor() is not None for tensor in seen))

    # What enters the norm of a mixer: the hidden tokens that run from block to block.
    for block in model.backbone.layers():
        block.mixer_norm.register_forward_pre_hook(watch)
    with torch.no_grad():
        fitted(model, batch, 20)
    assert chunks <= peak <= chunks + 2


def test_impossible_chunks_are_refused():
    model, batch = make("DeltaNet", "causal"), task()
    with pytest.raises(ConfigError, match="rows_per_chunk=0"):
        fitted(model, batch, 0)
    with pytest.raises(ConfigError, match="rows_per_chunk=-1"):
        model.predict(fitted(model, batch, 5), batch.x, rows_per_chunk=-1)

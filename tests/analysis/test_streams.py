"""Recording: one fit at a time, extensions included, in the very order of the tokens."""

import pytest
import torch
from contract.variants import make, task

from tabicl_linear.analysis import gates, record_streams
from tabicl_linear.errors import DataError


def test_an_extension_is_one_context_with_what_it_extends():
    model, batch = make("GatedDeltaNet", "causal"), task()
    x, y = batch.x[:, :20], batch.y[:, :20]
    with torch.no_grad():
        with record_streams(model, keep=gates) as recorded:
            state = model.fit(x[:, :8], y[:, :8])
            model.fit(x[:, 8:], y[:, 8:], state=state)
        assert [layer.beta.shape for layer in recorded.layers] == [(2, 20, 2)] * 2


def test_queries_are_not_recorded():
    model, batch = make("DeltaNet", "final_state"), task()
    with torch.no_grad(), record_streams(model) as recorded:
        state = model.fit(batch.x[:, :20], batch.y[:, :20])
        model.predict(state, batch.x[:, 20:])
    assert [layer.k.shape[1] for layer in recorded.layers] == [20, 20]


def test_a_training_pass_can_be_recorded():
    model, batch = make("DeltaNet", "causal", "int_mt"), task()
    with record_streams(model) as recorded:
        model(batch)
    assert recorded.layers[0].k.shape[1] == 2 * 30
    assert not recorded.layers[0].k.requires_grad


@pytest.mark.parametrize("fits", [0, 2])
@pytest.mark.parametrize("readout", ["causal", "bidirectional"])
def test_anything_but_one_context_is_refused(fits, readout):
    model, batch = make("DeltaNet", readout), task()
    with torch.no_grad(), record_streams(model) as recorded:
        for _ in range(fits):
            model.fit(batch.x[:, :20], batch.y[:, :20])
    with pytest.raises(DataError, match="one fit"):
        _ = recorded.layers


def test_hooks_are_gone_after_an_error():
    model = make("DeltaNet", "causal")
    with pytest.raises(KeyError), record_streams(model):
        raise KeyError
    assert not any(block.mixer._streams_hooks for block in model.backbone.layers())


def test_a_hook_sees_what_is_only_read():
    model, batch = make("DeltaNet", "final_state"), task()
    seen = []
    mixer = model.backbone.layers()[0].mixer
    handle = mixer.register_streams_hook(
        lambda streams, positions, written: seen.append((positions.tolist(), written))
    )
    with torch.no_grad():
        state = model.fit(batch.x[:, :6], batch.y[:, :6], rows_per_chunk=4)
        model.predict(state, batch.x[:, 20:22])
    assert seen == [
        ([0, 1, 2, 3], True),
        ([4, 5], True),
        ([0, 1, 2, 3], False),
        ([4, 5], False),
        ([6, 6], False),
    ]
    handle.remove()
    model.fit(batch.x[:, :6], batch.y[:, :6])
    assert len(seen) == 5

"""Tokens held in several slabs: one of the real size is never filled by the contexts of tests."""

import pytest
import torch
from contract.variants import AXES, make
from tolerances import RMS, assert_close

from tabicl_linear.backbone import long_context
from tabicl_linear.kernels.state import tensors

TASKS, TOKENS, CHUNK, DIM = 2, 23, 4, 32
"""Six chunks, the last of them shorter."""
OTHERS = [axis for axis in AXES if axis != "row" and "ridge" not in axis]
READOUTS = ["causal", "final_state", "bidirectional", "woven_causal", "woven_final_state"]


def held(chunks):
    tokens = long_context.HeldTokens()
    for chunk in chunks:
        tokens.append(chunk)
    tokens.join_last()
    return tokens


# What a token is made of is nothing to slabs: each axis with one size of them.
@pytest.mark.parametrize(
    ("axis", "chunks_per_slab"),
    [*(("row", size) for size in (1, 2, 4, 100)), *((axis, 2) for axis in OTHERS)],
)
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("gradients", [False, True])
def test_states_do_not_depend_on_how_many_chunks_are_held_together(
    gradients, readout, axis, chunks_per_slab, monkeypatch
):
    """With gradients slabs are replaced, without them changed in place; never what was given."""
    x = torch.randn(TASKS, TOKENS, DIM).double()
    given = x.clone()
    chunks = x.split(CHUNK, dim=1)
    monkeypatch.setattr(long_context, "SLAB_BYTES", chunks_per_slab * chunks[0].nbytes)
    assert len(held(chunks).slabs) == -(-len(chunks) // chunks_per_slab)
    backbone = make("DeltaNet+decay+conv", readout, axis=axis).backbone
    num_cells = 2 if AXES[axis].get("cells") else 1
    with torch.set_grad_enabled(gradients):
        if backbone.is_causal:
            states = None
            for chunk in chunks:
                states = backbone.write(chunk, states, num_cells=num_cells)
        else:
            states = backbone.write_held(held(chunks), num_cells=num_cells)
    assert torch.equal(x, given)
    with torch.no_grad():
        _, expected = backbone.fit(x, num_cells=num_cells)
    for state, own in zip(states, expected, strict=True):
        assert state.num_tokens == own.num_tokens == TOKENS
        for a, b in zip(tensors(state), tensors(own), strict=True):
            assert_close(a.detach(), b, RMS[torch.float64])

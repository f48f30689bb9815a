"""Tokens held in several slabs: one of the real size is never filled by the contexts of tests."""

import pytest
import torch
from contract.variants import AXES, make
from tolerances import RMS, assert_close

from tabicl_linear.backbone import long_context
from tabicl_linear.kernels.state import tensors

TASKS, TOKENS, CHUNK, DIM = 2, 23, 4, 32
"""Six chunks, the last of them shorter."""
READOUTS = ["causal", "final_state", "bidirectional", "woven_causal", "woven_final_state"]


@pytest.mark.parametrize("chunks_per_slab", [1, 2, 4, 100])
@pytest.mark.parametrize("axis", [axis for axis in AXES if "ridge" not in axis])
@pytest.mark.parametrize("readout", READOUTS)
def test_states_do_not_depend_on_how_many_chunks_are_held_together(
    readout, axis, chunks_per_slab, monkeypatch
):
    x = torch.randn(TASKS, TOKENS, DIM).double()
    chunks = x.split(CHUNK, dim=1)
    monkeypatch.setattr(long_context, "SLAB_BYTES", chunks_per_slab * chunks[0].nbytes)
    slabs = long_context.HeldTokens(chunks).slabs
    assert len(slabs) == -(-len(chunks) // chunks_per_slab)
    backbone = make("DeltaNet+decay+conv", readout, axis=axis).backbone
    num_cells = 2 if AXES[axis].get("two_axis") else 1
    with torch.no_grad():
        states = backbone.write(chunks, num_cells=num_cells)
        _, expected = backbone.fit(x, num_cells=num_cells)
    for state, own in zip(states, expected, strict=True):
        assert state.num_tokens == own.num_tokens == TOKENS
        for a, b in zip(tensors(state), tensors(own), strict=True):
            assert_close(a, b, RMS[torch.float64])

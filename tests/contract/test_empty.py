"""No rows and no tasks: defined for every mixer and readout, through blocks, stacks and models."""

import pytest
import torch
from contract.test_models import fitted
from contract.variants import AXES, across_axes, shared, spanned, task

from tabicl_linear.kernels.state import tensors

ROWS = [*((*pair, "row") for pair in spanned()), *across_axes()]
axes = pytest.mark.parametrize(("mixer", "readout", "axis"), ROWS)
CELLS = {axis: 2 if axis.endswith(("two_axis", "cells")) else 1 for axis in AXES}


def without_gradients(mixer, readout, axis):
    """A model that all tests share."""
    model = shared(mixer, readout, axis=axis)
    model.zero_grad()
    return model


@axes
def test_no_queries_give_no_logits(mixer, readout, axis):
    model, batch = without_gradients(mixer, readout, axis), task()
    state, queries = fitted(model, batch)
    logits = model.predict(state, queries[:, :0])
    assert logits.shape == (2, 0, 4)
    logits.sum().backward()
    assert not any(p.grad is not None and p.grad.any() for p in model.parameters())


@axes
def test_no_tokens_leave_states_as_they_were(mixer, readout, axis):
    backbone, cells = without_gradients(mixer, readout, axis).backbone, CELLS[axis]
    tokens, queries = torch.randn(4, 9, 32).double(), torch.randn(4, 3, 32).double()
    _, states = backbone.fit(tokens, num_cells=cells)
    if not backbone.woven:
        hidden, after = backbone.fit(tokens[:, :0], states, num_cells=cells)
        assert hidden.shape == (4, 0, 32)
        assert [layer.num_tokens for layer in after] == [9, 9]
        assert all(map(torch.equal, tensors(after), tensors(states)))
    hidden, nothing = backbone.fit(tokens[:, :0], num_cells=cells)
    written = backbone.write(tokens[:, :0], num_cells=cells)
    assert all(map(torch.equal, tensors(written), tensors(nothing)))
    read = backbone.predict(queries, nothing, num_cells=cells)
    assert read.isfinite().all()
    (hidden.sum() + read.sum()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in backbone.parameters())


@axes
def test_no_tasks(mixer, readout, axis):
    backbone, cells = without_gradients(mixer, readout, axis).backbone, CELLS[axis]
    for length in (0, 9):
        hidden, states = backbone.fit(torch.randn(0, length, 32).double(), num_cells=cells)
        read = backbone.predict(torch.randn(0, 3, 32).double(), states, num_cells=cells)
        assert hidden.shape == (0, length, 32)
        assert read.shape == (0, 3, 32)
        (hidden.sum() + read.sum()).backward()

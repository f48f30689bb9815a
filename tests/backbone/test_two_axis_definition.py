"""Stacks of blocks, with one token or several cells for each row, against plain loops."""

from functools import partial

import pytest
import torch
from backbone.definitions import Stack
from contract.variants import READOUTS
from mixers.definitions import Attention, GatedDelta
from tolerances import RMS, assert_close
from torch import nn

from tabicl_linear.architecture import Architecture
from tabicl_linear.architecture_options import Blocks, Cells
from tabicl_linear.backbone.stack import Backbone
from tabicl_linear.mixers.gated_delta import GatedDeltaNet
from tabicl_linear.mixers.softmax import Softmax
from tabicl_linear.model import InContextModel
from tabicl_linear.strategies.combined import Combined

DIM, HEADS, DEPTH, NUM_CELLS = 12, 2, 3, 4
TASKS, CONTEXT, QUERIES = 2, 7, 3
LINEAR_TIME = partial(GatedDeltaNet, head_dim=5, decay_constant=5.0, conv_size=3)
FORMULAS = partial(GatedDelta, c=5.0, window=3)


def noisy(mixer, readout: str, **changed) -> Backbone:
    """The backbone of a small model, every parameter seeded noise."""
    shape = Architecture(
        dim=DIM, num_heads=HEADS, depth=DEPTH, num_features=6, hidden_dim=7, **changed
    )
    parts = InContextModel.from_parts(mixer, READOUTS[readout], Combined(), shape)
    backbone = parts.backbone.double()
    for parameter in backbone.parameters():
        nn.init.normal_(parameter, std=0.4)
    return backbone


def by_loops(stack: Stack, context, queries, num_cells: int):
    """Hidden tokens [cell of task, row, d] of context and query rows, one task at a time."""
    outputs, read = [], []
    for own, asked in zip(context.split(num_cells), queries.split(num_cells), strict=True):
        hidden, states = stack.fit([list(row) for row in own.unbind(1)])
        outputs.append(torch.stack([torch.stack(row) for row in hidden], 1))
        answers = [stack.predict(list(row), states) for row in asked.unbind(1)]
        read.append(torch.stack([torch.stack(row) for row in answers], 1))
    return torch.cat(outputs), torch.cat(read)


def assert_same(backbone: Backbone, stack: Stack, *, num_cells: int = 1) -> None:
    context = torch.randn(TASKS * num_cells, CONTEXT, DIM).double()
    queries = torch.randn(TASKS * num_cells, QUERIES, DIM).double()
    with torch.no_grad():
        hidden, states = backbone.fit(context, num_cells=num_cells)
        read = backbone.predict(queries, states, num_cells=num_cells)
        expected = by_loops(stack, context, queries, num_cells)
    assert_close(hidden, expected[0], RMS[torch.float64], "context rows")
    assert_close(read, expected[1], RMS[torch.float64], "query rows")


readouts = pytest.mark.parametrize("readout", ["causal", "final_state", "bidirectional"])
RECURRENT = {"norm": "rms", "feed_forward": "swiglu"}


@readouts
def test_cells_of_a_row_see_each_other_in_even_layers_and_rows_in_all(readout):
    backbone = noisy(LINEAR_TIME, readout, cells=Cells())
    assert len(backbone.cell_attention) == 2
    stack = Stack(backbone, FORMULAS, HEADS, readout=readout, **RECURRENT)
    assert_same(backbone, stack, num_cells=NUM_CELLS)


@readouts
@pytest.mark.parametrize("every", [1, 3])
def test_cells_see_each_other_as_often_as_asked_and_layers_start_from_learned_states(
    every, readout
):
    options = dict(cells=Cells(attention_every=every), initial_states="learned")
    backbone = noisy(LINEAR_TIME, readout, **options)
    assert len(backbone.cell_attention) == {1: 3, 3: 1}[every]
    assert len(backbone.learned) == DEPTH
    stack = Stack(backbone, FORMULAS, HEADS, every=every, readout=readout, **RECURRENT)
    assert_same(backbone, stack, num_cells=NUM_CELLS)


@readouts
def test_one_token_for_each_row(readout):
    backbone = noisy(LINEAR_TIME, readout)
    assert_same(backbone, Stack(backbone, FORMULAS, HEADS, readout=readout, **RECURRENT))


def test_layers_of_softmax_have_their_norm_after_each_sum():
    blocks = Blocks("gelu", "post_layer", final_norm=False)
    backbone = noisy(Softmax, "final_state", blocks=blocks)
    stack = Stack(
        backbone, Attention, HEADS, readout="final_state", norm="layer", feed_forward="gelu"
    )
    assert_same(backbone, stack)


@pytest.mark.parametrize("final_norm", [False, True])
def test_blocks_of_a_mixer_alone(final_norm):
    """Mamba-2's blocks; without a final norm as the published non-causal linear attention."""
    backbone = noisy(LINEAR_TIME, "causal", blocks=Blocks("none", final_norm=final_norm))
    assert (backbone.final_norm is not None) == final_norm
    assert_same(backbone, Stack(backbone, FORMULAS, HEADS, readout="causal", norm="rms"))

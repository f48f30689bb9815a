"""Every mixer under every readout it serves, token by token against the paper's formulas."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from backbone.definitions import Layer, State
from contract.variants import MIXERS, READOUTS
from mixers import definitions as paper
from tolerances import RMS, assert_close
from torch import nn

from tabicl_linear.backbone.block import Block
from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.mixers.delta_product import DeltaProduct
from tabicl_linear.mixers.gated_delta import GatedDeltaNet
from tabicl_linear.mixers.gla import GatedLinearAttention
from tabicl_linear.mixers.kimi_delta import KimiDelta
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.mixers.mamba2 import Mamba2
from tabicl_linear.mixers.ridge import Ridge
from tabicl_linear.mixers.softmax import Softmax

DIM, HEADS, TASKS = 12, 2, 2
PIECES, QUERIES = (9, 5), 3
"""Context tokens come in two pieces, the first longer than any convolution looks back."""


class Case(NamedTuple):
    """A mixer and its formulas."""

    mixer: Callable[..., SequenceMixer]
    formulas: Callable[..., paper.Definition]


delta, gated, gla = DeltaNet, partial(GatedDeltaNet, head_dim=5), GatedLinearAttention
# More heads than the architecture's two, and keys narrower than values.
mamba = partial(Mamba2, head_dim=6, state_dim=5, conv_size=3)
CASES = {
    "softmax": Case(Softmax, paper.Attention),
    "linear": Case(LinearAttention, partial(paper.Linear, eps=1e-5)),
    "linear Z": Case(
        partial(LinearAttention, normalise=True), partial(paper.NormalisedLinear, eps=1e-5)
    ),
    "gla": Case(partial(gla, gate_rank=3), paper.GatedLinear),
    "gla conv": Case(partial(gla, conv_size=4), partial(paper.GatedLinear, window=4)),
    "gla mimetic": Case(partial(gla, mimetic=True), paper.GatedLinear),
    "delta": Case(delta, paper.Delta),
    "delta decay": Case(partial(delta, decay_constant=5.0), partial(paper.Delta, c=5.0)),
    "delta decay conv": Case(
        partial(delta, decay_constant=5.0, conv_size=4), partial(paper.Delta, c=5.0, window=4)
    ),
    "gated delta": Case(gated, paper.GatedDelta),
    "gated delta decay conv": Case(
        partial(gated, decay_constant=5.0, conv_size=3),
        partial(paper.GatedDelta, c=5.0, window=3),
    ),
    "gated delta mimetic": Case(partial(gated, mimetic=True), paper.GatedDelta),
    "kimi delta": Case(partial(KimiDelta, gate_rank=3), paper.KimiDelta),
    "kimi delta decay conv": Case(
        partial(KimiDelta, decay_constant=5.0, conv_size=3),
        partial(paper.KimiDelta, c=5.0, window=3),
    ),
    "delta product": Case(DeltaProduct, paper.DeltaProduct),
    "delta product decay": Case(
        partial(DeltaProduct, decay_constant=5.0), partial(paper.DeltaProduct, c=5.0)
    ),
    "mamba2": Case(mamba, partial(paper.Mamba, window=3)),
    "ridge": Case(partial(Ridge, regulariser=0.3), partial(paper.ScaledRidge, eps=1e-5)),
    "ridge plain": Case(
        partial(Ridge, regulariser=0.3, penalty="plain"), partial(paper.PlainRidge, eps=1e-5)
    ),
    "ridge none": Case(partial(Ridge, penalty="none"), partial(paper.LeastSquares, eps=1e-5)),
}


def noisy(name: str, readout: str) -> Block:
    """A block of the mixer alone, no parameter of which leaves the outputs as they are."""
    mixer = CASES[name].mixer(DIM, HEADS)
    identity = nn.Identity()
    block = Block(
        mixer,
        READOUTS[readout](mixer.num_heads),
        feed_forward=None,
        norms=(identity, identity),
        norm_first=True,
    ).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    return block


def served() -> list[tuple[str, str]]:
    pairs = []
    for name in CASES:
        for readout in READOUTS:
            try:
                noisy(name, readout)
            except UnsupportedReadout:
                continue
            pairs.append((name, readout))
    return [(name, readout) for name, readout in pairs if "woven" not in readout]


pairs = pytest.mark.parametrize(("name", "readout"), served())


def test_every_mixer_of_the_package_has_formulas():
    discovered = {type(make(32, 2)) for make in MIXERS.values()}
    assert {type(case.mixer(DIM, HEADS)) for case in CASES.values()} == discovered


def by_block(block: Block, x: torch.Tensor) -> tuple[torch.Tensor, list]:
    """Outputs for context pieces and queries, in order, and the state of each task."""
    first, second, queries = x.split([*PIECES, QUERIES], dim=1)
    one, state = block.fit(first)
    two, state = block.fit(second, state)
    return torch.cat([one, two, block.predict(queries, state)], dim=1), state


def by_formulas(
    name: str, readout: str, block: Block, x: torch.Tensor
) -> tuple[torch.Tensor, list]:
    own = {k.removeprefix("mixer."): w for k, w in block.named_parameters()}
    layer = Layer(CASES[name].formulas(own, block.mixer.num_heads), readout, own)
    outputs, states = [], []
    for task in x:
        first, second, queries = (list(part) for part in task.split([*PIECES, QUERIES]))
        one, state = layer.fit(first, layer.start())
        two, state = layer.fit(second, state)
        read = [layer.predict(query, state) for query in queries]
        outputs.append(torch.stack([*one, *two, *read]))
        states.append(state)
    return torch.stack(outputs), states


@pairs
def test_outputs_and_states_are_those_of_the_formulas(name, readout):
    block = noisy(name, readout)
    x = torch.randn(TASKS, sum(PIECES) + QUERIES, DIM).double()
    with torch.no_grad():
        actual, state = by_block(block, x)
        expected, states = by_formulas(name, readout, block, x)
    # What the mixer adds: without the residual sum it would hide among the inputs.
    parts = zip(
        (actual - x).split([*PIECES, QUERIES], 1),
        (expected - x).split([*PIECES, QUERIES], 1),
        ("first piece", "second piece", "queries"),
        strict=True,
    )
    for ours, formulas, what in parts:
        assert_close(ours, formulas, RMS[torch.float64], what)
    assert state.num_tokens == sum(PIECES)
    if isinstance(state.rule_state, MatrixState):
        assert_close(state.rule_state.S, stacked(states), RMS[torch.float64], "state")


def stacked(states: list[State]) -> torch.Tensor:
    """S of every task and head; with Z as a last row where there is one."""
    return torch.stack(
        [
            torch.stack(
                [m.S if m.z is None else torch.cat([m.S, m.z[None]]) for m in state.memories]
            )
            for state in states
        ]
    )


@pairs
def test_gradients_of_inputs_and_parameters_are_those_of_the_formulas(name, readout):
    block = noisy(name, readout)
    x = torch.randn(TASKS, sum(PIECES) + QUERIES, DIM).double().requires_grad_()
    weights = torch.randn(TASKS, sum(PIECES) + QUERIES, DIM).double()
    names, inputs = zip(*block.named_parameters(), strict=True)
    ours, formulas = (
        torch.autograd.grad((outputs * weights).sum(), [x, *inputs])
        for outputs in (by_block(block, x)[0], by_formulas(name, readout, block, x)[0])
    )
    for what, a, b in zip(["inputs", *names], ours, formulas, strict=True):
        assert_close(a, b, RMS[torch.float64], what)


@pytest.mark.parametrize("readout", ["causal_frobenius", "final_state_frobenius"])
def test_a_state_below_epsilon_is_not_blown_up_to_the_learned_norm(readout):
    block = noisy("linear", readout)
    x = torch.randn(TASKS, sum(PIECES) + QUERIES, DIM).double()
    with torch.no_grad():
        block.mixer.qkv.weight[2 * DIM :] *= 1e-7
        actual, state = by_block(block, x)
        expected, _ = by_formulas("linear", readout, block, x)
    assert state.rule_state.S.square().sum((-1, -2)).sqrt().max() < 1e-5
    assert_close(actual - x, expected - x, RMS[torch.float64])

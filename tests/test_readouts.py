"""Readouts, woven states and normalisers against their definitions, token by token in float64."""

from functools import partial

import pytest
import torch
from tolerances import AUTOCAST, CONTRACT, RMS, assert_close

from tabicl_linear.backbone.block import Block
from tabicl_linear.backbone.stack import Backbone
from tabicl_linear.kernels import reference
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.mixers.gated_delta import GatedDeltaNet
from tabicl_linear.mixers.gla import GatedLinearAttention
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.mixers.softmax import Softmax
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.readouts import Bidirectional, Causal, FinalState

DIM, HEADS, ROWS = 16, 2, 11
RECURRENT = {
    "delta": partial(DeltaNet, decay_constant=5.0),
    "gated_delta": partial(GatedDeltaNet, head_dim=8),
    "gla": GatedLinearAttention,
    "linear": LinearAttention,
}
recurrent = pytest.mark.parametrize("name", RECURRENT)


def _mixer(name):
    mixer = RECURRENT[name](DIM, HEADS).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return mixer


def _streams(mixer, rows=ROWS):
    x = torch.randn(2, rows, DIM).double()
    return mixer.project(x, torch.arange(rows), None, independent=False)[0]


def _final(mixer, x):
    """The state after all tokens, by the reference."""
    if isinstance(mixer, DeltaNet | GatedDeltaNet):
        return reference.delta(x.q, x.k, x.v, beta=x.beta, log_decay=x.log_decay)[1]
    return reference.additive(x.q, x.k, x.v, beta=x.beta, log_decay=x.log_decay)[1]


def _read(S, q):
    return torch.einsum("bhvk,bthk->bthv", S, q)


@recurrent
def test_final_state_reads_the_final_state_and_nothing_else(name):
    mixer = _mixer(name)
    x, queries = _streams(mixer), _streams(mixer, 3)
    S, readout = _final(mixer, x), FinalState(HEADS)
    heads, state = readout.context(mixer.rule, x, None)
    assert_close(state.S, S, RMS[torch.float64])
    assert_close(heads, _read(S, x.q), RMS[torch.float64])
    assert_close(readout.query(mixer.rule, queries, state), _read(S, queries.q), RMS[torch.float64])


@pytest.mark.parametrize("self_term", [False, True])
def test_causal_normalised_reads_states_of_the_learned_norm(self_term):
    mixer, readout = _mixer("linear"), Causal(HEADS, self_term=self_term, normalise=True).double()
    torch.nn.init.normal_(readout.state_norm.log_scale)
    x, queries = _streams(mixer), _streams(mixer, 3)
    heads, state = readout.context(mixer.rule, x, None)
    for t in range(ROWS):
        S = _final(mixer, type(x)(*(None if z is None else z[:, : t + 1] for z in x)))
        assert_close(heads[:, t : t + 1], _read(_scaled(S, readout), x.q[:, t : t + 1]), 1e-10)
    S, read = _final(mixer, x), readout.query(mixer.rule, queries, state)
    for t in range(3):
        v, k = queries.v[:, t], queries.k[:, t]
        own = S + torch.einsum("bhv,bhk->bhvk", v, k) if self_term else S
        assert_close(
            read[:, t : t + 1], _read(_scaled(own, readout), queries.q[:, t : t + 1]), 1e-10
        )


@recurrent
def test_final_state_normalised_reads_a_state_of_the_learned_norm(name):
    mixer, readout = _mixer(name), FinalState(HEADS, normalise=True).double()
    torch.nn.init.normal_(readout.state_norm.log_scale)
    x = _streams(mixer)
    heads, _ = readout.context(mixer.rule, x, None)
    assert_close(heads, _read(_scaled(_final(mixer, x), readout), x.q), RMS[torch.float64])


def _scaled(S, readout):
    norm = S.square().sum((-1, -2), keepdim=True).sqrt()
    alpha = readout.state_norm.log_scale.exp()[:, None, None]
    return S * alpha * S.shape[-2] ** 0.5 / norm


@pytest.mark.parametrize(
    "readout", [partial(Causal, normalise=True), partial(FinalState, normalise=True)]
)
def test_a_state_of_zero_has_finite_gradients(readout):
    mixer = LinearAttention(DIM, HEADS)
    x = _streams(mixer.double())
    zero = x._replace(v=torch.zeros_like(x.v).requires_grad_())
    heads, _ = readout(HEADS).double().context(mixer.rule, zero, None)
    heads.sum().backward()
    assert zero.v.grad.isfinite().all()


def _block(mixer, readout):
    norms = (RMSNorm(DIM, eps=1e-6), RMSNorm(DIM, eps=1e-6))
    return Block(mixer, readout, feed_forward=None, norms=norms, norm_first=True).double()


@recurrent
def test_bidirectional_is_the_mean_of_the_sequence_and_its_reversal(name):
    mixer, x = _mixer(name), torch.randn(2, ROWS, DIM).double()
    both, state = _block(mixer, Bidirectional(HEADS)).fit(x)
    one_way = _block(mixer, Causal(HEADS))
    forward, first = one_way.fit(x)
    backward, second = one_way.fit(x.flip(1))
    assert_close(both, (forward + backward.flip(1)) / 2, CONTRACT)
    assert_close(state.rule_state.S, (first.rule_state.S + second.rule_state.S) / 2, CONTRACT)
    query = torch.randn(2, 1, DIM).double()
    mean = LayerState(MatrixState((first.rule_state.S + second.rule_state.S) / 2), None, ROWS)
    expected = one_way.predict(query, mean)
    assert_close(_block(mixer, Bidirectional(HEADS)).predict(query, state), expected, CONTRACT)


@pytest.mark.parametrize("readout", [Causal, FinalState, Bidirectional])
@recurrent
def test_woven_layers_start_from_a_learned_state_plus_the_layer_below(name, readout):
    blocks = [_block(_mixer(name), readout(HEADS)) for _ in range(3)]
    backbone = Backbone(blocks, None, weave_states=True).double()
    x = torch.randn(2, ROWS, DIM).double()
    outputs, states = backbone.fit(x)
    below = 0.0
    for block, learned, state in zip(blocks, backbone.woven, states, strict=True):
        start = LayerState(MatrixState((learned + below).expand(2, *learned.shape)), None, 0)
        x, expected = block.fit(x, start)
        assert_close(state.rule_state.S, expected.rule_state.S, CONTRACT)
        below = expected.rule_state.S
    assert_close(outputs, x, CONTRACT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_learned_states_are_float32_in_models_of_16_bits(dtype):
    block = _block(_mixer("delta"), FinalState(HEADS))
    backbone = Backbone([block], None, learn_states=True).double()
    x = torch.randn(2, ROWS, DIM).double()
    expected, _ = backbone.fit(x)
    outputs, (state,) = backbone.to(dtype).fit(x.to(dtype))
    assert state.rule_state.S.dtype == torch.float32
    assert_close(outputs.double(), expected, AUTOCAST[dtype])


def test_the_normaliser_divides_by_the_sum_of_key_weights():
    mixer = LinearAttention(DIM, HEADS, normalise=True).double()
    mixer.out = torch.nn.Identity()
    mixer.norm = torch.nn.Identity()
    tokens = torch.randn(2, ROWS, DIM).double()
    x, _ = mixer.project(tokens, torch.arange(ROWS), None, independent=False)
    heads, _ = Causal(HEADS).context(mixer.rule, x, None)
    weights = torch.einsum("bthk,bshk->bths", x.q, x.k) * torch.ones(ROWS, ROWS).tril()[:, None]
    v = x.v[..., :-1]
    expected = torch.einsum("bths,bshv->bthv", weights, v) / weights.sum(-1, keepdim=True)
    assert_close(mixer.output(heads, x, tokens), expected.flatten(-2), 1e-5)


def test_softmax_scales_by_the_root_of_the_head_dimension():
    mixer = Softmax(DIM, HEADS).double()
    mixer.out = torch.nn.Identity()
    tokens = torch.randn(2, ROWS, DIM).double()
    q, k, v = mixer.qkv(tokens).unflatten(-1, (3, HEADS, DIM // HEADS)).unbind(-3)
    expected = reference.softmax(q / (DIM // HEADS) ** 0.5, k, v, causal=True)
    x, _ = mixer.project(tokens, torch.arange(ROWS), None, independent=False)
    heads, _ = Causal(HEADS).context(mixer.rule, x, None)
    assert_close(mixer.output(heads, x, tokens), expected.flatten(-2), RMS[torch.float64])

"""Our mixers against flash-linear-attention's layers with the same weights."""

import pytest
import torch
from fla.layers import GatedDeltaNet as TheirGatedDeltaNet
from fla.models.cache_utils import Cache
from fla.ops.delta_rule.chunk import ChunkDeltaRuleFunction
from layers import PAIRS, build, fit, predict

from tabicl_linear.mixers.gated_delta import GatedDeltaNet


def _gradients(outputs, x, module):
    """Gradients of a random projection of the outputs: of the input and of all parameters."""
    g = torch.Generator().manual_seed(7)
    loss = (outputs * torch.randn(outputs.shape, generator=g)).sum()
    names, parameters = zip(*module.named_parameters(), strict=True)
    of_x, *of_parameters = torch.autograd.grad(loss, [x, *parameters])
    return of_x, dict(zip(names, of_parameters, strict=True))


def _compare(agree, row, name, *, length=50, scale=1.0, weights=True):
    """The whole sequence at once: outputs, gradients of inputs and, if asked for, of weights."""
    pair = PAIRS[name]
    ours, theirs = build(pair)
    x = (scale * torch.randn(2, length, theirs.hidden_size)).requires_grad_()
    actual, _ = fit(ours, x)
    expected, *_ = theirs(x)
    of_x, of_weights = _gradients(actual, x, ours)
    of_their_x, of_their_weights = _gradients(expected, x, theirs)
    agree(
        row,
        {"output": actual, "x": of_x, **(pair.weights(of_weights) if weights else {})},
        {"output": expected, "x": of_their_x, **(of_their_weights if weights else {})},
    )


@pytest.mark.parametrize("name", PAIRS)
def test_layers(agree, name):
    _compare(agree, f"{name}, layer", name)


@pytest.mark.parametrize("name", PAIRS)
def test_layers_where_epsilons_count(agree, name):
    """Inputs so small that the epsilons in the norms of keys and outputs are a large part of them.

    Without the gradients of weights: that of linear attention's queries is then what is left of a
    cancellation, and in float32 neither side has five digits of it.
    """
    _compare(agree, f"{name}, layer, tiny inputs", name, length=20, scale=1e-3, weights=False)


def test_gla_in_chunks(agree):
    """Beyond 64 tokens the layer goes from its recurrent kernel to the chunked one."""
    _compare(agree, "GLA, layer, chunked", "GLA", length=70)


def test_delta_net_in_chunks(agree, monkeypatch):
    """As for GLA; here the function in between refuses float32, which its kernels can do."""

    def chunked(*, q, k, v, beta, initial_state, output_final_state, **_):
        scale = q.shape[-1] ** -0.5
        return ChunkDeltaRuleFunction.apply(
            q, k, v, beta, scale, initial_state, output_final_state, True
        )

    monkeypatch.setattr("fla.layers.delta_net.chunk_delta_rule", chunked)
    _compare(agree, "DeltaNet, layer, chunked", "DeltaNet", length=100)


@pytest.mark.parametrize("name", PAIRS)
def test_query_is_an_appended_token(agree, name):
    """A query that reads our state equals the last token of context and query together."""
    ours, theirs = build(PAIRS[name])
    context = torch.randn(1, 20, theirs.hidden_size, requires_grad=True)
    queries = torch.randn(1, 2, theirs.hidden_size, requires_grad=True)
    _, state = fit(ours, context)
    actual = predict(ours, queries, state)
    sequences = torch.cat([context.repeat_interleave(2, 0), queries.reshape(2, 1, -1)], 1)
    expected = theirs(sequences)[0][:, -1].reshape(actual.shape)
    weight = torch.randn_like(actual)
    results = []
    for outputs in (actual, expected):
        of_context, of_queries = torch.autograd.grad((outputs * weight).sum(), [context, queries])
        results.append({"output": outputs, "context": of_context, "queries": of_queries})
    agree(f"{name}, query after context", *results)


@pytest.mark.parametrize("name", PAIRS)
@torch.no_grad()
def test_states_and_decoding(agree, name):
    """The state of a context, and one more token decoded from it, without gradients."""
    ours, theirs = build(PAIRS[name])
    theirs.eval()
    context = torch.randn(2, 20, theirs.hidden_size)
    query = torch.randn(2, 1, theirs.hidden_size)
    _, state = fit(ours, context)
    cache = theirs(context, past_key_values=Cache(), use_cache=True)[2]
    S = cache[0]["recurrent_state"].clone()
    decoded, *_ = theirs(query, past_key_values=cache, use_cache=True)
    agree(
        f"{name}, decoding",
        {"state": state.rule_state.S, "output": predict(ours, query, state)},
        {"state": S.transpose(-1, -2) if PAIRS[name].keys_first else S, "output": decoded},
    )


def test_gates_start_from_the_same_distribution():
    """Decay rates and time steps of Gated DeltaNet, by the distance of Kolmogorov and Smirnov."""
    heads = 4096
    ours = GatedDeltaNet(1, heads, head_dim=1).forget
    theirs = TheirGatedDeltaNet(
        hidden_size=1, num_heads=heads, head_dim=1, expand_v=1, use_short_conv=False
    )
    below = torch.arange(heads) / heads
    for own, other in ((ours.log_rate, theirs.A_log), (ours.bias, theirs.dt_bias)):
        share = torch.searchsorted(own.detach().sort().values, other.detach().sort().values) / heads
        # Equal distributions exceed this once in two thousand draws; the draw here is seeded.
        assert (share - below).abs().max() < 2 * (2 / heads) ** 0.5

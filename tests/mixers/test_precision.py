"""Long contexts in 16 bits: every mixer as autocast trains it, beside itself in float32."""

from functools import cache

import pytest
import torch
from contract.variants import MIXERS
from tolerances import AUTOCAST, assert_close

from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.backends.placement import PlacedModule
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.mixers.softmax import Softmax

DIM, HEADS, QUERIES = 32, 2, 50
TOKENS, MOST_TOKENS = 8_000, 20_000
"""The most for plain sums, which leave the accuracy of bfloat16 later than other states do."""
# Other options change projections or the start, which is overwritten here, not what is summed.
NAMES = [name for name in MIXERS if "+" not in name or name.endswith("+Z")]
# Rules without C++ kernels compute the same with either backend.
CASES = [(name, "torch") for name in NAMES]
if unavailable() is None:
    CASES += [(name, "cpp") for name in NAMES if name not in ("Ridge", "Softmax")]


class Layer(PlacedModule):
    """A mixer with the kernels of a backend and weights that make its sums grow."""

    def __init__(self, name, backend, dtype):
        super().__init__(DIM)
        torch.manual_seed(0)
        self.mixer = MIXERS[name](DIM, HEADS)
        for parameter in self.mixer.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.3)
        self.place(backend, autocast=(dtype,))

    def forward(self, x, queries):
        """What tokens read of their prefixes, and queries of the state, without and with self."""
        with self.computing():
            return self.outputs(x, queries)

    def outputs(self, x, queries):
        rule, start, readers = self.mixer.rule, None, x
        streams, conv_inputs = self.mixer.project(
            x, torch.arange(x.shape[1]), None, independent=False
        )
        if isinstance(self.mixer, Softmax):  # every prefix of 8,000 would take long
            start = rule.fold(map_tensors(lambda z: z[:, :-QUERIES], streams))
            streams, readers = map_tensors(lambda z: z[:, -QUERIES:], (streams, x))
        state = rule.fold(streams, start)
        positions = torch.full((QUERIES,), x.shape[1])
        asked, _ = self.mixer.project(queries, positions, conv_inputs, independent=True)
        outputs = {"read": self.mixer.output(rule.read(asked.q, state), asked, queries)}
        if rule.has_prefix_reads:
            heads, _ = rule.scan(streams, start)
            outputs["scan"] = self.mixer.output(heads, streams, readers)
            outputs["step"] = self.mixer.output(rule.peek(asked, state), asked, queries)
        return outputs


@cache
def _tokens(name):
    """Tokens that have something in common, as the rows of a table have."""
    g, count = torch.Generator().manual_seed(0), TOKENS
    if name.startswith("LinearAttention"):
        count = MOST_TOKENS
    return 1 + torch.randn(1, count, DIM, generator=g), torch.randn(1, QUERIES, DIM, generator=g)


@cache
@torch.no_grad()
def _in_float32(name):
    return Layer(name, "torch", torch.float32)(*_tokens(name))


@pytest.mark.parametrize("dtype", AUTOCAST)
@pytest.mark.parametrize(("name", "backend"), CASES)
def test_thousands_of_tokens_under_autocast_are_near_float32_with_finite_gradients(
    name, dtype, backend
):
    layer = Layer(name, backend, dtype)
    with torch.autocast("cpu", dtype):
        outputs = layer(*_tokens(name))
    for what, expected in _in_float32(name).items():
        assert outputs[what].dtype == dtype
        assert_close(outputs[what], expected, AUTOCAST[dtype], what)
    sum(z.float().square().mean() for z in outputs.values()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


def test_the_sums_of_these_tokens_leave_the_range_of_float16():
    mixer = Layer("LinearAttention", "torch", torch.float32).mixer
    tokens = _tokens("LinearAttention")[0]
    x, _ = mixer.project(tokens, torch.arange(MOST_TOKENS), None, independent=False)
    heads, _ = mixer.rule.scan(x)
    assert heads.half().isinf().any()
    assert heads[:, :100].half().isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", MIXERS)
def test_reads_have_at_least_float32(name, dtype):
    mixer = MIXERS[name](DIM, HEADS)
    x = torch.randn(1, 6, DIM)
    streams, _ = mixer.project(x, torch.arange(6), None, independent=False)
    streams = map_tensors(lambda z: z.to(dtype), streams)
    wide = torch.promote_types(dtype, torch.float32)
    state = mixer.rule.fold(streams)
    assert mixer.rule.read(streams.q, state).dtype == wide
    if mixer.rule.has_prefix_reads:
        assert mixer.rule.scan(streams)[0].dtype == wide
        assert mixer.rule.peek(streams, state).dtype == wide

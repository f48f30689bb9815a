"""Seeded inputs and rules for the kernel tests."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from tabicl_linear.kernels import reference
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.kernels.streams import Streams


class Case(NamedTuple):
    """A rule with a state of fixed size, and which gates feed it."""

    rule: UpdateRule
    chunk: int
    beta: bool
    gate: str  # none, head, channel


MATRIX_CASES = {
    "linear": Case(AdditiveRule(chunk_size=16), 16, beta=False, gate="none"),
    "linear_beta": Case(AdditiveRule(chunk_size=16), 16, beta=True, gate="none"),
    "head_decay": Case(AdditiveRule(chunk_size=16), 16, beta=True, gate="head"),
    "channel_decay": Case(AdditiveRule(chunk_size=16), 16, beta=False, gate="channel"),
    "delta": Case(DeltaRule(chunk_size=16), 16, beta=True, gate="none"),
    "gated_delta": Case(DeltaRule(chunk_size=16), 16, beta=True, gate="head"),
    "channel_delta": Case(DeltaRule(channel_chunk_size=16), 16, beta=True, gate="channel"),
}
LENGTHS = [1, 15, 16, 17, 63, 100]


def streams(
    case: Case, length: int, *, seed: int = 0, dtype=torch.float64, batch: int = 2
) -> Streams:
    """Random streams as mixers make them: unit keys, write rates in (0, 1), gates below one."""
    g = torch.Generator().manual_seed(seed)
    h, k, v = 2, 6, 5

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=g, dtype=torch.float64)

    gate_dim = {"none": 0, "head": 1, "channel": k}[case.gate]
    return Streams(
        q=draw(batch, length, h, k).to(dtype),
        k=F.normalize(draw(batch, length, h, k), dim=-1).to(dtype),
        v=draw(batch, length, h, v).to(dtype),
        beta=draw(batch, length, h).sigmoid().to(dtype) if case.beta else None,
        log_decay=F.logsigmoid(draw(batch, length, h, gate_dim)).to(dtype) if gate_dim else None,
    )


def initial(case: Case, *, seed: int = 1, dtype=torch.float64, batch: int = 2) -> MatrixState:
    """A random initial state."""
    g = torch.Generator().manual_seed(seed)
    return MatrixState(torch.randn(batch, 2, 5, 6, generator=g, dtype=torch.float64).to(dtype))


def truth(case: Case, x: Streams, start: MatrixState | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and final state of the token-by-token reference."""
    S = None if start is None else start.S
    if isinstance(case.rule, DeltaRule):
        return reference.delta(x.q, x.k, x.v, beta=x.beta, log_decay=x.log_decay, S=S)
    return reference.additive(x.q, x.k, x.v, beta=x.beta, log_decay=x.log_decay, S=S)


def map_streams(function, x: Streams) -> Streams:
    """Apply a function to every tensor of the streams."""
    return Streams(*(None if z is None else function(z) for z in x))

"""Our update rules beside flash-linear-attention's functions, as functions of the same tensors.

The library reads o = S^T q with S of shape [k, v] and scales queries by k^-0.5 itself; our rules
read o = S q with S of shape [v, k] and take scaled queries. Both take and give [b, t, h, .] here.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from fla.ops.delta_rule.chunk import ChunkDeltaRuleFunction
from fla.ops.delta_rule.naive import delta_rule_chunkwise, delta_rule_recurrence
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.gated_delta_rule.naive import (
    naive_chunk_gated_delta_rule,
    naive_recurrent_gated_delta_rule,
)
from fla.ops.gla import chunk_gla
from fla.ops.gla.naive import naive_recurrent_gla
from fla.ops.linear_attn import chunk_linear_attn
from fla.ops.linear_attn.naive import naive_chunk_linear_attn, naive_recurrent_linear_attn
from fla.ops.simple_gla import chunk_simple_gla
from fla.ops.simple_gla.naive import naive_chunk_simple_gla, naive_recurrent_simple_gla

from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.kernels.streams import Streams


class Size(NamedTuple):
    """Batch, tokens, heads, key dimension, value dimension."""

    batch: int
    length: int
    heads: int
    key: int
    value: int


def size_of(length: int) -> Size:
    """Two tables; of two heads at 65 tokens alone, since the interpreter takes twice as long."""
    return Size(2, length, 2 if length == 65 else 1, 16, 24)


class Inputs(NamedTuple):
    """Streams with unscaled queries, and the state [v, k] to start from."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    beta: torch.Tensor | None
    log_decay: torch.Tensor | None
    S: torch.Tensor | None


class Op(NamedTuple):
    """A rule and the tensors it takes; gate is none, head or channel."""

    rule: UpdateRule
    beta: bool
    gate: str


OPS = {
    "linear attention": Op(AdditiveRule(), beta=False, gate="none"),
    "GLA": Op(AdditiveRule(), beta=False, gate="channel"),
    "Mamba-2 (simple GLA)": Op(AdditiveRule(), beta=True, gate="head"),
    "delta rule": Op(DeltaRule(), beta=True, gate="none"),
    "gated delta rule": Op(DeltaRule(), beta=True, gate="head"),
}
Function = Callable[[Inputs, torch.Tensor | None], tuple[torch.Tensor, torch.Tensor | None]]
"""From the inputs and the initial state [k, v] to the outputs and the final state [k, v]."""


def _linear(x, S):
    return chunk_linear_attn(
        x.q, x.k, x.v, initial_state=S, output_final_state=True, normalize=False
    )


def _gla(x, S):
    return chunk_gla(x.q, x.k, x.v, x.log_decay, initial_state=S, output_final_state=True)


def _simple_gla(x, S):
    g = x.log_decay.squeeze(-1)
    return chunk_simple_gla(x.q, x.k, _written(x), g, initial_state=S, output_final_state=True)


def _delta(x, S):
    # The public function refuses float32, which its kernels compute without any change.
    return ChunkDeltaRuleFunction.apply(x.q, x.k, x.v, x.beta, x.q.shape[-1] ** -0.5, S, True)


def _gated_delta(x, S):
    g = x.log_decay.squeeze(-1)
    return chunk_gated_delta_rule(
        x.q, x.k, x.v, g, x.beta, initial_state=S, output_final_state=True
    )


KERNELS: dict[str, Function] = {
    "linear attention": _linear,
    "GLA": _gla,
    "Mamba-2 (simple GLA)": _simple_gla,
    "delta rule": _delta,
    "gated delta rule": _gated_delta,
}


def _naive_linear(x, S):
    return naive_recurrent_linear_attn(x.q, x.k, x.v, initial_state=S, output_final_state=True)


def _naive_linear_chunk(x, S):
    return naive_chunk_linear_attn(x.q, x.k, x.v), None


def _naive_gla(x, S):
    return naive_recurrent_gla(x.q, x.k, x.v, x.log_decay, initial_state=S, output_final_state=True)


def _naive_simple_gla(x, S):
    g = x.log_decay.squeeze(-1)
    return naive_recurrent_simple_gla(
        x.q, x.k, _written(x), g, initial_state=S, output_final_state=True
    )


def _naive_simple_gla_chunk(x, S):
    g = x.log_decay.squeeze(-1)
    return naive_chunk_simple_gla(
        x.q, x.k, _written(x), g, initial_state=S, output_final_state=True
    )


def _naive_delta(x, S):
    heads_first = (z.transpose(1, 2) for z in (x.q, x.k, x.v, x.beta))
    o, final = delta_rule_recurrence(*heads_first, initial_state=S)
    return o.transpose(1, 2), final


def _naive_delta_chunk(x, S):
    o, final = delta_rule_chunkwise(*(z.transpose(1, 2) for z in (x.q, x.k, x.v, x.beta)))
    return o.transpose(1, 2), final


def _naive_gated_delta(x, S):
    g = x.log_decay.squeeze(-1)
    return naive_recurrent_gated_delta_rule(
        x.q, x.k, x.v, x.beta, g, initial_state=S, output_final_state=True
    )


def _naive_gated_delta_chunk(x, S):
    g = x.log_decay.squeeze(-1)
    return naive_chunk_gated_delta_rule(
        x.q, x.k, x.v, g, x.beta, initial_state=S, output_final_state=True
    )


NAIVE: dict[str, Function] = {
    "linear attention": _naive_linear,
    "GLA": _naive_gla,
    "Mamba-2 (simple GLA)": _naive_simple_gla,
    "delta rule": _naive_delta,
    "gated delta rule": _naive_gated_delta,
}
NAIVE_CHUNKED: dict[str, Function] = {
    "linear attention": _naive_linear_chunk,
    "Mamba-2 (simple GLA)": _naive_simple_gla_chunk,
    "delta rule": _naive_delta_chunk,
    "gated delta rule": _naive_gated_delta_chunk,
}


def inputs(op: Op, size: Size, *, state: bool, gate_power: float = 1.0) -> Inputs:
    """Random inputs as mixers make them: unit keys, write rates in (0, 1), gates below one."""
    b, t, h, k, v = size
    gate_dim = {"none": 0, "head": 1, "channel": k}[op.gate]
    return Inputs(
        q=torch.randn(b, t, h, k),
        k=F.normalize(torch.randn(b, t, h, k), dim=-1),
        v=torch.randn(b, t, h, v),
        beta=torch.randn(b, t, h).sigmoid() if op.beta else None,
        log_decay=gate_power * F.logsigmoid(torch.randn(b, t, h, gate_dim)) if gate_dim else None,
        S=torch.randn(b, h, v, k) if state else None,
    )


def ours(op: Op, x: Inputs) -> dict[str, torch.Tensor]:
    """Outputs and final state of our rule."""
    streams = Streams(x.q * x.q.shape[-1] ** -0.5, x.k, x.v, x.beta, x.log_decay)
    o, state = op.rule.scan(streams, None if x.S is None else MatrixState(x.S))
    return {"output": o, "state": state.S}


def theirs(function: Function, x: Inputs) -> dict[str, torch.Tensor]:
    """Outputs of one of the library's functions, and its final state where it gives one."""
    o, S = function(x, None if x.S is None else x.S.transpose(-1, -2).contiguous())
    return {"output": o} if S is None else {"output": o, "state": S.transpose(-1, -2)}


def _written(x: Inputs) -> torch.Tensor:
    return x.v * x.beta.unsqueeze(-1)

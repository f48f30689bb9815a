"""flash-linear-attention's Triton kernels for the update rules.

Their states are [b h k v], ours [b h v k]. Queries are passed already scaled, keys normalised and
write rates effective, so the library computes exactly the formulas of `kernels/delta.py` and
`kernels/additive.py`.
16-bit inputs go to the tensor cores as they are; float32 inputs stay float32, which Triton
multiplies in TF32 on cards that have it. Initial and final states, gates, write rates and results
are always float32.

The library is imported at the first call and is not modified. Whether a kernel works on a given
card is determined by running it (`self_test.py`).
"""

from importlib import metadata

import torch

from tabicl_linear.kernels import additive, delta
from tabicl_linear.kernels.rule import Kernel, computed_in
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor

DISTRIBUTION = "fla-core"
"""The package with the kernels; flash-linear-attention adds layers, which are not needed."""


def unavailable() -> str | None:
    """Why the library is not available, or None if it is installed."""
    try:
        metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return (
            f"{DISTRIBUTION} is not installed (pip install '.[fla]' in a clone of this project, or "
            f"{DISTRIBUTION} einops packaging beside torch's own triton)"
        )
    return None


def _delta_scan(
    x: Streams, S: Float[Tensor, "b h v k"], *, size: int
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    if not x.k.numel():
        return delta.scan(x, S, size=size)
    from fla.ops.delta_rule import chunk_delta_rule
    from fla.ops.delta_rule.chunk import ChunkDeltaRuleFunction
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    dtype = computed_in(x)
    q, k, v = (z.to(dtype) for z in (x.q, x.k, x.v))
    beta = delta.write_rates(x).float()
    state = _keys_first(S)
    if x.log_decay is not None:
        outputs, final = chunk_gated_delta_rule(
            q,
            k,
            v,
            x.log_decay.squeeze(-1).float(),
            beta,
            scale=1.0,
            initial_state=state,
            output_final_state=True,
        )
    elif dtype == torch.float32:
        # The public function refuses float32, although its kernels compute it without changes; the
        # last argument tells them not to normalise queries and keys.
        outputs, final = ChunkDeltaRuleFunction.apply(q, k, v, beta, 1.0, state, True, False)
    else:
        outputs, final = chunk_delta_rule(
            q, k, v, beta, scale=1.0, initial_state=state, output_final_state=True
        )
    return outputs.float(), _values_first(final)


def _delta_fold(x: Streams, S: Float[Tensor, "b h v k"], *, size: int) -> Float[Tensor, "b h v k"]:
    # The library has no operation without reads; the reads of these queries are discarded.
    return _delta_scan(x._replace(q=x.k.detach()), S, size=size)[1]


def _additive_scan(
    x: Streams, S: Float[Tensor, "b h v k"], *, size: int
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    if not x.k.numel():
        return additive.scan(x, S, size=size)
    from fla.ops.gla import chunk_gla
    from fla.ops.linear_attn import chunk_linear_attn
    from fla.ops.simple_gla import chunk_simple_gla

    # Weighted values are float32; the dtype of the computation is that of the keys.
    x = additive.weighted(x)
    dtype = computed_in(x)
    if dtype == torch.float16:
        # States of chunks (without decay) and reads (always) are kept in the dtype of the inputs,
        # and sums over many thousand rows leave the range of float16.
        dtype = torch.float32
    inputs = [z.to(dtype) for z in (x.q, x.k, x.v)]
    state = _keys_first(S)
    if x.log_decay is None:
        outputs, final = chunk_linear_attn(
            *inputs, scale=1.0, initial_state=state, output_final_state=True, normalize=False
        )
    elif x.log_decay.shape[-1] == 1:
        gates = x.log_decay.squeeze(-1).float()
        outputs, final = chunk_simple_gla(
            *inputs, gates, scale=1.0, initial_state=state, output_final_state=True
        )
    else:
        outputs, final = chunk_gla(
            *inputs, x.log_decay.float(), scale=1.0, initial_state=state, output_final_state=True
        )
    return outputs.float(), _values_first(final)


def _additive_fold(
    x: Streams, S: Float[Tensor, "b h v k"], *, size: int
) -> Float[Tensor, "b h v k"]:
    if x.log_decay is None:
        # One matrix product, for which no kernel is needed.
        return additive.fold(x, S, size=size)
    return _additive_scan(x._replace(q=x.k.detach()), S, size=size)[1]


def _keys_first(S: Float[Tensor, "b h v k"]) -> Float[Tensor, "b h k v"]:
    return S.float().transpose(-1, -2).contiguous()


def _values_first(S: Float[Tensor, "b h k v"]) -> Float[Tensor, "b h v k"]:
    return S.transpose(-1, -2).contiguous()


DELTA = Kernel(_delta_scan, _delta_fold)
"""The delta rule, plain and gated."""

ADDITIVE = Kernel(_additive_scan, _additive_fold)
"""Additive states without decay, with one gate per head and with one per key channel."""

"""The update rules in C++, for float32 states on the CPU.

The delta rules and additive states with a gate per key channel go token by token (`csrc/scan.h`),
other additive states in chunks (`additive.py`). Plain PyTorch computes what the library does not
take: other devices and dtypes, additive states in float16 without gates, and token by token keys
of more than 128 channels.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from tabicl_linear.backends.cpp import additive as chunked
from tabicl_linear.backends.cpp.loader import pointer
from tabicl_linear.backends.cpp.problem import channels_last, problem, run, view
from tabicl_linear.kernels import additive, delta
from tabicl_linear.kernels.rule import Kernel
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor

MAX_KEYS = 128


def delta_scan(
    x: Streams, S: Float[Tensor, "b h v k"], *, size: int
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    """`delta.scan`."""
    if not _takes(x, S):
        return delta.scan(x, S, size=size)
    return _apply(x.q, x, delta.write_rates(x), S)


def delta_fold(x: Streams, S: Float[Tensor, "b h v k"], *, size: int) -> Float[Tensor, "b h v k"]:
    """`delta.fold`."""
    if not _takes(x, S):
        return delta.fold(x, S, size=size)
    return _apply(None, x, delta.write_rates(x), S)[1]


def additive_scan(
    x: Streams, S: Float[Tensor, "b h v k"], *, size: int
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    """`additive.scan`."""
    if chunked.takes(x, S):
        return chunked.apply(x, S, reads=True)
    if x.log_decay is None or not _takes(x, S):
        return additive.scan(x, S, size=size)
    x = additive.weighted(x)
    return _apply(x.q, x, None, S)


def additive_fold(
    x: Streams, S: Float[Tensor, "b h v k"], *, size: int
) -> Float[Tensor, "b h v k"]:
    """`additive.fold`."""
    if chunked.takes(x, S):
        return chunked.apply(x, S, reads=False)[1]
    if x.log_decay is None or not _takes(x, S):
        return additive.fold(x, S, size=size)
    x = additive.weighted(x)
    return _apply(None, x, None, S)[1]


DELTA = Kernel(delta_scan, delta_fold)
ADDITIVE = Kernel(additive_scan, additive_fold)


def _takes(x: Streams, S: Tensor) -> bool:
    """Whether the token-by-token library computes these (the state is float64 if inputs are)."""
    on_cpu = x.k.device.type == "cpu"
    return on_cpu and S.dtype == torch.float32 and x.k.shape[-1] <= MAX_KEYS


def _apply(q: Tensor | None, x: Streams, beta: Tensor | None, S: Tensor) -> tuple[Any, Tensor]:
    """Return outputs (None without queries) and final state."""
    inputs = (None if z is None else z.float() for z in (q, x.k, x.v, beta))
    outputs, final = _Scan.apply(*inputs, S, x.log_decay)
    return outputs, final


class _Scan(torch.autograd.Function):
    """Outputs (None without queries) and final state, with a backward pass in C++."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor | None,
        k: Tensor,
        v: Tensor,
        beta: Tensor | None,
        S: Tensor,
        log_decay: Tensor | None,
    ) -> tuple[Tensor | None, Tensor]:
        alpha = None if log_decay is None else log_decay.float().exp()
        inputs = [None if x is None else channels_last(x) for x in (q, k, v, beta, alpha)]
        S = S.contiguous()
        final = torch.empty_like(S)
        outputs = None if q is None else v.new_empty(v.shape)
        errors = v.new_empty(v.shape) if beta is not None and any(ctx.needs_input_grad) else None
        run("forward", problem(inputs, S), *map(pointer, (outputs, errors, final)))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, errors, S, final)
        return outputs, final

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, outputs_grad: Tensor | None, final_grad: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *inputs, errors, S, final = ctx.saved_tensors
        if outputs_grad is None:
            inputs[0] = None
        else:
            outputs_grad = channels_last(outputs_grad)
        if final_grad is not None:
            final_grad = final_grad.contiguous()
        grads = [None if x is None else x.new_empty(x.shape) for x in (*inputs, S)]
        dq, dk, dv, dbeta, dgate, dS = grads
        run(
            "backward",
            problem(inputs, S),
            *map(pointer, (errors, final, final_grad)),
            view(outputs_grad),
            *map(pointer, grads),
        )
        return dq, dk, dv, dbeta, dS, dgate

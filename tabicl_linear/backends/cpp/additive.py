"""Additive states with at most one gate per token and head, in C++ (`csrc/additive.h`).

For queries, keys and values in float32 or bfloat16 on the CPU, with strides as the projections left
them; states are float32.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from tabicl_linear.backends.cpp.loader import pointer
from tabicl_linear.backends.cpp.problem import channels_last, problem, run, view
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Tensor

CHUNK = 32
"""Tokens in a chunk, a multiple of 16; docs/performance_log.md has the measurements."""
_TAKEN = (torch.float32, torch.bfloat16)


def takes(x: Streams, S: Tensor) -> bool:
    """Whether the library computes these streams from this state."""
    gates = 1 if x.log_decay is None else x.log_decay.shape[-1]
    wide = x.q, x.k, x.v
    lowered = all(z.dtype in _TAKEN for z in wide)
    return x.k.device.type == "cpu" and S.dtype == torch.float32 and lowered and gates == 1


def apply(x: Streams, S: Tensor, *, reads: bool) -> tuple[Any, Tensor]:
    """Return outputs [b t h v] (None unless `reads`) and the final state [b h v k].

    `takes(x, S)` must be true.
    """
    beta = None if x.beta is None else x.beta.float()
    decay = None if x.log_decay is None else x.log_decay.float()
    outputs, final = _Additive.apply(x.q if reads else None, x.k, x.v, beta, decay, S)
    return outputs, final


class _Additive(torch.autograd.Function):
    """Outputs (None without queries) and final state, with a backward pass in C++."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor | None,
        k: Tensor,
        v: Tensor,
        beta: Tensor | None,
        decay: Tensor | None,
        S: Tensor,
    ) -> tuple[Tensor | None, Tensor]:
        inputs = [None if x is None else channels_last(x) for x in (q, k, v, beta, decay)]
        S = S.contiguous()
        final = torch.empty_like(S)
        outputs = None if q is None else S.new_empty(v.shape)
        run("additive", problem(inputs, S, chunk=CHUNK), pointer(outputs), pointer(final))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, S)
        return outputs, final

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, outputs_grad: Tensor | None, final_grad: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *inputs, S = ctx.saved_tensors
        if outputs_grad is None:
            inputs[0] = None
        else:
            outputs_grad = channels_last(outputs_grad)
        if final_grad is not None:
            final_grad = final_grad.contiguous()
        grads = [None if x is None else S.new_empty(x.shape) for x in (*inputs, S)]
        addresses = map(pointer, (final_grad, *grads))
        run("additive_back", problem(inputs, S, chunk=CHUNK), view(outputs_grad), *addresses)
        pairs = zip(grads, (*inputs, S), strict=True)
        return tuple(grad if grad is None else grad.to(x.dtype) for grad, x in pairs)

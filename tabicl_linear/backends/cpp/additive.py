"""Additive states with at most one gate per token and head, in C++ (`csrc/additive.h`).

For queries, keys and values in float32 or bfloat16 on the CPU, with strides as the projections left
them; states are float32.
"""

import ctypes
from functools import cache
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from tabicl_linear.backends.cpp.loader import library, pointer
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Tensor

CHUNK = 32
"""Tokens of a chunk, a multiple of 16; docs/performance.md has the measurements."""
FEW = 1 << 16
"""With fewer multiplications, a second thread takes longer to start than it saves."""
_TAKEN = (torch.float32, torch.bfloat16)


class _View(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "token", "head", "lowered")),
    )


class _Problem(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "tokens", "heads", "keys", "values")),
        ("chunk", ctypes.c_int64),
        *((name, _View) for name in ("q", "k", "v", "beta", "decay")),
        ("initial", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
    )


@cache
def _library() -> ctypes.CDLL:
    loaded = library()
    address, problem, view = ctypes.c_void_p, ctypes.POINTER(_Problem), ctypes.POINTER(_View)
    loaded.tabicl_additive.argtypes = [problem, *[address] * 2]
    loaded.tabicl_additive_back.argtypes = [problem, view, *[address] * 7]
    return loaded


def takes(x: Streams, S: Tensor) -> bool:
    """Whether the library computes these."""
    gates = 1 if x.log_decay is None else x.log_decay.shape[-1]
    wide = x.q, x.k, x.v
    lowered = all(z.dtype in _TAKEN for z in wide)
    return x.k.device.type == "cpu" and S.dtype == torch.float32 and lowered and gates == 1


def apply(x: Streams, S: Tensor, *, reads: bool) -> tuple[Any, Tensor]:
    """Outputs [b t h v] (None unless `reads`) and final state [b h v k] of streams it takes."""
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
        inputs = [None if x is None else _channels_last(x) for x in (q, k, v, beta, decay)]
        S = S.contiguous()
        final = torch.empty_like(S)
        outputs = None if q is None else S.new_empty(v.shape)
        problem = _problem(inputs, S)
        _check(_library().tabicl_additive(ctypes.byref(problem), pointer(outputs), pointer(final)))
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
            outputs_grad = _channels_last(outputs_grad)
        if final_grad is not None:
            final_grad = final_grad.contiguous()
        grads = [None if x is None else S.new_empty(x.shape) for x in (*inputs, S)]
        problem, out = _problem(inputs, S), _view(outputs_grad)
        _check(
            _library().tabicl_additive_back(
                ctypes.byref(problem),
                ctypes.byref(out),
                *map(pointer, (final_grad, *grads)),
            )
        )
        pairs = zip(grads, (*inputs, S), strict=True)
        return tuple(grad if grad is None else grad.to(x.dtype) for grad, x in pairs)


def _problem(inputs: list[Tensor | None], S: Tensor) -> _Problem:
    _, k, v, _, _ = inputs
    assert k is not None, "keys are always given"
    assert v is not None, "values are always given"
    batch, tokens, heads, keys = k.shape
    assert S.shape == (batch, heads, v.shape[-1], keys), "the library looks at no shapes"
    few = k.numel() * v.shape[-1] < FEW
    return _Problem(
        *(batch, tokens, heads, keys, v.shape[-1], CHUNK),
        *map(_view, inputs),
        S.data_ptr(),
        1 if few else torch.get_num_threads(),
    )


def _channels_last(x: Tensor) -> Tensor:
    """`x` with contiguous channels (the last of [b t h e]), without a copy if they already are."""
    return x if x.ndim == 3 or x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _view(x: Tensor | None) -> _View:
    if x is None:
        return _View()
    return _View(x.data_ptr(), *x.stride()[:3], x.dtype == torch.bfloat16)


def _check(status: int) -> None:
    if status:
        raise MemoryError("The C++ kernel ran out of memory; use fewer rows or tasks at once.")

"""Token-wise functions in C++ (`csrc/tokenwise.cpp`), for float32 and bfloat16 on the CPU.

Other dtypes and devices are left to PyTorch. Sums are float32 for all inputs; inputs of matrix
products under autocast are returned in the dtype of the product, rounded as autocast would do it.
"""

import ctypes
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from tabicl_linear.backends.cpp.loader import fields, pointer, run
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.nn import tokenwise
from tabicl_linear.nn.feature_maps import UNIT_NORM_EPS
from tabicl_linear.types import Float, Tensor

FEW = 1 << 15
"""With fewer numbers, a second thread takes longer to start than it saves."""
PIECES = 64
"""Rows are divided into this many pieces for any number of threads, so that results are equal."""


class _Norm(ctypes.Structure):
    _fields_ = fields(
        "x weight y scale dx dweight", "rows dim pieces", floats="eps", flags="lowered_x lowered_y"
    )


class _Gated(ctypes.Structure):
    _fields_ = fields("x y dy dx", "rows dim pieces", flags="lowered")


class _Features(ctypes.Structure):
    _fields_ = fields("x q k v dx", "rows heads dim pieces", floats="scale eps", flags="lowered")


def rms_norm(
    x: Float[Tensor, "... e"], weight: Float[Tensor, " e"], eps: float
) -> Float[Tensor, "... e"]:
    """`tokenwise.rms_norm`."""
    if not takes(x) or weight.dtype != torch.float32:
        return tokenwise.rms_norm(x, weight, eps)
    lowered = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    y: Tensor = _RMSNorm.apply(x, weight, eps, lowered if lowered in _TAKEN else torch.float32)
    return y


def swiglu(gate_and_up: Float[Tensor, "... f"]) -> Float[Tensor, "... e"]:
    """`tokenwise.swiglu`."""
    if not takes(gate_and_up):
        return tokenwise.swiglu(gate_and_up)
    y: Tensor = _SwiGLU.apply(gate_and_up)
    return y


def delta_features(
    qkv: Float[Tensor, "... 3 h k"],
) -> tuple[Float[Tensor, "... h k"], Float[Tensor, "... h k"], Float[Tensor, "... h k"]]:
    """`tokenwise.delta_features`; values are float32, as the C++ rules take them."""
    if not takes(qkv):
        return tokenwise.delta_features(qkv)
    q, k, v = _DeltaFeatures.apply(qkv)
    return q, k, v


TOKENWISE: Choice = {
    tokenwise.rms_norm: rms_norm,
    tokenwise.swiglu: swiglu,
    tokenwise.delta_features: delta_features,
}
"""The functions in PyTorch and those that replace them."""
_TAKEN = (torch.float32, torch.bfloat16)


def takes(x: Tensor) -> bool:
    """Whether the C++ functions take a tensor: not empty, on the CPU, in float32 or bfloat16."""
    return x.device.type == "cpu" and x.dtype in _TAKEN and x.numel() > 0


def threads_for(x: Tensor) -> int:
    """How many threads compute a function of each number of a tensor."""
    return 1 if x.numel() < FEW else torch.get_num_threads()


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        y, scale = x.new_empty(x.shape, dtype=dtype), weight.new_empty(x.shape[:-1])
        run("norm", _norm(x, weight, y, scale, eps), threads_for(x))
        ctx.save_for_backward(x, weight, scale)
        ctx.eps = eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        dy = dy.contiguous()
        problem = _norm(x, weight, dy, scale, ctx.eps)
        dx, parts = torch.empty_like(x), weight.new_empty(problem.pieces, len(weight))
        problem.dx, problem.dweight = pointer(dx), pointer(parts)
        run("norm_back", problem, threads_for(x))
        return dx, parts.sum(0), None, None


def _norm(x: Tensor, weight: Tensor, y: Tensor, scale: Tensor, eps: float) -> _Norm:
    dim = x.shape[-1]
    rows = x.numel() // dim
    return _Norm(
        *map(pointer, (x, weight, y, scale, None, None)),
        *(rows, dim, min(PIECES, rows)),
        *(eps, x.dtype == torch.bfloat16, y.dtype == torch.bfloat16),
    )


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
        run("gated", _gated(x, y=y), threads_for(x))
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        # Named, so that a copy outlives the call, which only gets its address.
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        run("gated_back", _gated(x, dy=dy, dx=dx), threads_for(x))
        return dx


def _gated(
    x: Tensor, *, y: Tensor | None = None, dy: Tensor | None = None, dx: Tensor | None = None
) -> _Gated:
    dim = x.shape[-1] // 2
    rows = x.numel() // (2 * dim)
    sizes = rows, dim, min(PIECES, rows)
    return _Gated(*map(pointer, (x, y, dy, dx)), *sizes, x.dtype == torch.bfloat16)


class _DeltaFeatures(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor) -> tuple[Tensor, ...]:
        qkv = qkv.contiguous()
        shape = *qkv.shape[:-3], *qkv.shape[-2:]
        out = tuple(qkv.new_empty(shape, dtype=torch.float32) for _ in range(3))
        run("features", _features(qkv, *out), threads_for(qkv))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(qkv)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Tensor:
        (qkv,) = ctx.saved_tensors
        grads = tuple(None if grad is None else grad.contiguous() for grad in grads)
        dqkv = torch.empty_like(qkv)
        problem = _features(qkv, *grads)
        problem.dx = pointer(dqkv)
        run("features_back", problem, threads_for(qkv))
        return dqkv


def _features(qkv: Tensor, q: Tensor | None, k: Tensor | None, v: Tensor | None) -> _Features:
    heads, dim = qkv.shape[-2:]
    rows = qkv.numel() // (3 * heads * dim)
    return _Features(
        *map(pointer, (qkv, q, k, v, None)),
        *(rows, heads, dim, min(PIECES, rows)),
        *(dim**-0.5, UNIT_NORM_EPS, qkv.dtype == torch.bfloat16),
    )

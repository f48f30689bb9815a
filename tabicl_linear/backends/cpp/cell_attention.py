"""Attention across the cells of a row in C++ (`csrc/cells.cpp`): float32 and bfloat16 on the CPU.

Rows are read in place, without a transposition. Other dtypes and devices, and rows with more or
wider cells, are left to PyTorch.
"""

import ctypes
from functools import cache
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from tabicl_linear.backends.cpp.loader import library, pointer
from tabicl_linear.backends.cpp.tokenwise import FEW, PIECES, takes
from tabicl_linear.kernels import cell_attention
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.types import Float, Tensor

MOST_CELLS, MOST_DIM = 16, 128
"""Maximum number of cells of a row and of channels of a head, as in `csrc/cells.cpp`."""

_address, _count = ctypes.c_void_p, ctypes.c_int64


class _Cells(ctypes.Structure):
    _fields_ = (
        *((name, _address) for name in ("qkv", "out", "dqkv")),
        *((name, _count) for name in ("groups", "cells", "rows", "heads", "dim", "pieces")),
        ("scale", ctypes.c_float),
        ("lowered", ctypes.c_int),
    )


def attend_across_cells(
    qkv: Float[Tensor, "g t 3 h k"], num_cells: int
) -> Float[Tensor, "g t h k"]:
    """`cell_attention.attend_across_cells`."""
    if not takes(qkv) or num_cells > MOST_CELLS or qkv.shape[-1] > MOST_DIM:
        return cell_attention.attend_across_cells(qkv, num_cells)
    heads: Tensor = _Attention.apply(qkv, num_cells)
    return heads


CELLS: Choice = {cell_attention.attend_across_cells: attend_across_cells}
"""Replaces the function in PyTorch."""


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, num_cells: int) -> Tensor:
        qkv = qkv.contiguous()
        out = qkv.new_empty(*qkv.shape[:2], *qkv.shape[3:])
        _call("tabicl_cells", _problem(qkv, out, None, num_cells), qkv)
        ctx.save_for_backward(qkv)
        ctx.num_cells = num_cells
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (qkv,) = ctx.saved_tensors
        # Named, so that a copy outlives the call, which only gets its address.
        grad = grad.contiguous()
        dqkv = torch.empty_like(qkv)
        _call("tabicl_cells_back", _problem(qkv, grad, dqkv, ctx.num_cells), qkv)
        return dqkv, None


def _problem(qkv: Tensor, out: Tensor, dqkv: Tensor | None, num_cells: int) -> _Cells:
    groups, rows = len(qkv) // num_cells, qkv.shape[1]
    heads, dim = qkv.shape[-2:]
    return _Cells(
        *map(pointer, (qkv, out, dqkv)),
        *(groups, num_cells, rows, heads, dim, min(PIECES, groups * rows)),
        *(dim**-0.5, qkv.dtype == torch.bfloat16),
    )


def _call(name: str, problem: _Cells, x: Tensor) -> None:
    threads = 1 if x.numel() < FEW else torch.get_num_threads()
    _function(name)(ctypes.byref(problem), threads)


@cache
def _function(name: str) -> Any:
    function = library()[name]
    function.argtypes = [ctypes.POINTER(_Cells), _count]
    function.restype = None
    return function

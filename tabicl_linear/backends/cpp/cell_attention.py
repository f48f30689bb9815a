"""Attention across the cells of a row in C++ (`csrc/cells.cpp`): float32 and bfloat16 on the CPU.

Rows are read in place, without a transposition. Other dtypes and devices, and rows with more or
wider cells, are left to PyTorch.
"""

import ctypes
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from tabicl_linear.backends.cpp.loader import fields, pointer, run
from tabicl_linear.backends.cpp.tokenwise import PIECES, takes, threads_for
from tabicl_linear.kernels import cell_attention
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.types import Float, Tensor

MOST_CELLS, MOST_DIM = 16, 128
"""Maximum number of cells of a row and of channels of a head, as in `csrc/cells.cpp`."""


class _Cells(ctypes.Structure):
    _fields_ = fields(
        "qkv out dqkv", "groups cells rows heads dim pieces", floats="scale", flags="lowered"
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
        run("cells", _problem(qkv, out, None, num_cells), threads_for(qkv))
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
        run("cells_back", _problem(qkv, grad, dqkv, ctx.num_cells), threads_for(qkv))
        return dqkv, None


def _problem(qkv: Tensor, out: Tensor, dqkv: Tensor | None, num_cells: int) -> _Cells:
    groups, rows = len(qkv) // num_cells, qkv.shape[1]
    heads, dim = qkv.shape[-2:]
    return _Cells(
        *map(pointer, (qkv, out, dqkv)),
        *(groups, num_cells, rows, heads, dim, min(PIECES, groups * rows)),
        *(dim**-0.5, qkv.dtype == torch.bfloat16),
    )

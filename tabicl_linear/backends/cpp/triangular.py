"""Lengths of the columns of L^-1 R in C++ (`csrc/triangular.cpp`), float32 and float64, on CPUs."""

import ctypes
from functools import cache
from typing import Any

import torch

from tabicl_linear.backends.cpp.loader import library, pointer
from tabicl_linear.kernels import triangular
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.types import Float, Tensor

_address, _count = ctypes.c_void_p, ctypes.c_int64
_TAKEN = (torch.float32, torch.float64)


class _Lengths(ctypes.Structure):
    _fields_ = (
        *((name, _address) for name in ("factor", "right", "out")),
        *((name, _count) for name in ("size", "columns", "factor_row", "factor_column")),
        *((name, _count) for name in ("right_row", "right_column")),
        ("is_double", ctypes.c_int),
    )


def squared_lengths(
    factors: Float[Tensor, "b k k"], right: Float[Tensor, "b k n"] | None = None
) -> Float[Tensor, "b n"]:
    """`triangular.squared_lengths`."""
    if factors.device.type != "cpu" or factors.dtype not in _TAKEN:
        return triangular.squared_lengths(factors, right)
    tasks, size, _ = factors.shape
    out = factors.new_empty(tasks, size if right is None else right.shape[2])
    if (
        size == 0
    ):  # An empty tensor has no address, which is how the library is told of the identity.
        return out.zero_()
    for task, lengths in enumerate(out):
        _solve(factors[task], None if right is None else right[task], lengths)
    return out


def _solve(factor: Tensor, right: Tensor | None, out: Tensor) -> None:
    strides = *factor.stride(), *((0, 0) if right is None else right.stride())
    sizes = len(factor), len(out)
    problem = _Lengths(
        *map(pointer, (factor, right, out)), *sizes, *strides, factor.dtype == torch.float64
    )
    if not _function()(ctypes.byref(problem), torch.get_num_threads()):
        raise MemoryError(f"No memory is left to solve {sizes[0]} equations {sizes[1]} times.")


TRIANGULAR: Choice = {triangular.squared_lengths: squared_lengths}
"""Replaces the function in PyTorch."""


@cache
def _function() -> Any:
    lengths = library()["tabicl_lengths"]
    lengths.argtypes, lengths.restype = [ctypes.POINTER(_Lengths), _count], ctypes.c_bool
    return lengths

"""Standard scores of cells in C++ (`csrc/scores.cpp`): float32 and float64 on the CPU."""

import ctypes
from functools import cache
from typing import Any

import torch

from tabicl_linear.backends.cpp.loader import library, pointer
from tabicl_linear.backends.cpp.tokenwise import FEW, PIECES
from tabicl_linear.kernels import standard_scores as plain
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.types import Float, Tensor

_address, _count = ctypes.c_void_p, ctypes.c_int64


class _Scores(ctypes.Structure):
    _fields_ = (
        *((name, _address) for name in ("x", "out", "fill", "lower", "upper")),
        *((name, _address) for name in ("mean", "factor", "row_scale")),
        *((name, _count) for name in ("tasks", "rows", "columns", "pieces")),
        *((name, ctypes.c_double) for name in ("bound", "largest")),
        ("is_double", ctypes.c_int),
    )


def standard_scores(
    x: Float[Tensor, "b n m"],
    fill: Float[Tensor, "b m"],
    lower: Float[Tensor, "b m"],
    upper: Float[Tensor, "b m"],
    mean: Float[Tensor, "b m"],
    factor: Float[Tensor, "b m"],
    row_scale: Float[Tensor, " b"],
) -> Float[Tensor, "b n m"]:
    """`standard_scores.standard_scores`."""
    statistics = fill, lower, upper, mean, factor, row_scale
    is_double = all(part.dtype == torch.float64 for part in statistics)
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or not is_double:
        return plain.standard_scores(x, *statistics)
    # Named, so that copies outlive the call, which only gets their addresses.
    x, *columns = (part.contiguous() for part in (x, *statistics))
    out = torch.empty_like(x)
    problem = _Scores(
        *map(pointer, (x, out, *columns)),
        *(*x.shape, min(PIECES, max(1, x.shape[1]))),
        *(plain.MAX_STANDARDISED, plain.LARGEST, x.dtype == torch.float64),
    )
    _function()(ctypes.byref(problem), 1 if x.numel() < FEW else torch.get_num_threads())
    return out


SCORES: Choice = {plain.standard_scores: standard_scores}
"""The function in PyTorch and the one that replaces it."""


@cache
def _function() -> Any:
    function = library()["tabicl_scores"]
    function.argtypes, function.restype = [ctypes.POINTER(_Scores), _count], None
    return function

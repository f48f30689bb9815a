"""Standard scores of cells in C++ (`csrc/scores.cpp`): float32 and float64 on the CPU."""

import ctypes

import torch

from tabicl_linear.backends.cpp.loader import fields, pointer, run
from tabicl_linear.backends.cpp.tokenwise import PIECES, threads_for
from tabicl_linear.kernels import standard_scores as plain
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.types import Float, Tensor


class _Scores(ctypes.Structure):
    _fields_ = fields(
        "x out fill lower upper mean factor row_scale",
        "tasks rows columns pieces",
        doubles="bound largest",
        flags="is_double",
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
    run("scores", problem, threads_for(x))
    return out


SCORES: Choice = {plain.standard_scores: standard_scores}
"""The function in PyTorch and the one that replaces it."""

"""Triangular and positive definite systems in C++ (`csrc/triangular.cpp`), on CPUs.

Squared lengths of the columns of L^-1 R in float32 and float64, and solutions of
(G + c I) X = R for several c in float64.
"""

import ctypes

import torch

from tabicl_linear.backends.cpp.loader import fields, pointer, run
from tabicl_linear.kernels import cholesky, triangular
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.types import Float, Tensor

_TAKEN = (torch.float32, torch.float64)


class _Lengths(ctypes.Structure):
    _fields_ = fields(
        "factor right out",
        "size columns factor_row factor_column right_row right_column",
        flags="is_double",
    )


class _Systems(ctypes.Structure):
    _fields_ = fields("gram added right solutions diagonals", "penalties tasks size columns")


def squared_lengths(
    factors: Float[Tensor, "b k k"], right: Float[Tensor, "b k n"] | None = None
) -> Float[Tensor, "b n"]:
    """`triangular.squared_lengths`."""
    if factors.device.type != "cpu" or factors.dtype not in _TAKEN:
        return triangular.squared_lengths(factors, right)
    tasks, size, _ = factors.shape
    out = factors.new_empty(tasks, size if right is None else right.shape[2])
    # An empty tensor has a null address, which means the identity to the library; with a size of 0
    # it would then write beyond its memory.
    if size == 0 or not out.numel():
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
    failure = f"No memory is left to solve {sizes[0]} equations {sizes[1]} times."
    run("lengths", problem, torch.get_num_threads(), failure=failure)


def shifted_solutions(
    gram: Float[Tensor, "b k k"], added: Float[Tensor, "p 1"], right: Float[Tensor, "b k y"]
) -> tuple[Float[Tensor, "p b k y"], Float[Tensor, "p b k"]]:
    """`cholesky.shifted_solutions`."""
    if gram.device.type != "cpu" or gram.dtype != torch.float64:
        return cholesky.shifted_solutions(gram, added, right)
    gram, added, right = gram.contiguous(), added.contiguous(), right.contiguous()
    tasks, size, columns = right.shape
    solutions = right.new_empty(len(added), *right.shape)
    diagonals = right.new_empty(len(added), tasks, size)
    problem = _Systems(
        *map(pointer, (gram, added, right, solutions, diagonals)),
        *(len(added), tasks, size, columns),
    )
    failure = f"No memory is left to solve {len(added) * tasks} x {size} equations."
    run("systems", problem, torch.get_num_threads(), failure=failure)
    return solutions, diagonals


TRIANGULAR: Choice = {
    triangular.squared_lengths: squared_lengths,
    cholesky.shifted_solutions: shifted_solutions,
}
"""The functions in PyTorch and those that replace them."""

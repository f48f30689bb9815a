"""Logistic regressions of a few classes in C++ (`csrc/logistic.cpp`): float64 on the CPU."""

import ctypes

import torch

from tabicl_linear.backends.cpp.loader import fields, pointer, run
from tabicl_linear.kernels import logistic
from tabicl_linear.kernels.chosen import Choice
from tabicl_linear.kernels.logistic import ENOUGH, ITERATIONS, LogisticProblem
from tabicl_linear.types import Float, Tensor


class _Problem(ctypes.Structure):
    _fields_ = fields(
        "x targets present map penalty inverse out",
        "tasks rows classes width iterations",
        doubles="enough",
    )


def fitted(problem: LogisticProblem) -> Float[Tensor, "b k w"]:
    """`logistic.fitted`."""
    if not _takes(problem):
        return logistic.fitted(problem)
    return _called("", problem, problem.map.shape)


def inverse_curvature(problem: LogisticProblem) -> Float[Tensor, "b i i"]:
    """`logistic.inverse_curvature`."""
    if not _takes(problem):
        return logistic.inverse_curvature(problem)
    tasks, classes, width = problem.map.shape
    return _called("_inverse", problem, (tasks, classes * width, classes * width))


def left_out(problem: LogisticProblem, inverse: Float[Tensor, "b i i"]) -> Float[Tensor, "b n k"]:
    """`logistic.left_out`."""
    if not _takes(problem):
        return logistic.left_out(problem, inverse)
    return _called("_left_out", problem, problem.targets.shape, inverse.contiguous())


LOGISTIC: Choice = {
    logistic.fitted: fitted,
    logistic.inverse_curvature: inverse_curvature,
    logistic.left_out: left_out,
}
"""The functions in PyTorch and those that replace them."""


def _takes(problem: LogisticProblem) -> bool:
    numbers = (part for part in problem if part.dtype != torch.bool)
    return problem.x.device.type == "cpu" and all(x.dtype == torch.float64 for x in numbers)


def _called(
    name: str, problem: LogisticProblem, shape: tuple[int, ...], inverse: Tensor | None = None
) -> Tensor:
    parts = [part.contiguous() for part in problem]
    out = problem.x.new_empty(shape)
    sizes = *problem.x.shape[:2], *problem.map.shape[1:], ITERATIONS
    arguments = _Problem(*map(pointer, (*parts, inverse, out)), *sizes, ENOUGH)
    failure = f"No memory is left for logistic regressions of shape {tuple(shape)}."
    run(f"logistic{name}", arguments, torch.get_num_threads(), failure=failure)
    return out

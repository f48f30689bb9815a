"""Checks what users pass to a model, before a tensor operation fails on it."""

from typing import NamedTuple

import torch

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.types import Tensor

CPU_ROWS, GPU_ROWS = 2048, 16384
"""Most rows of a task in the network at a time: few enough for a CPU's cache, enough to keep a GPU
busy."""

CPU_TOKENS, MIN_CPU_ROWS = 4096, 64
"""On a CPU, most tokens of a task in the network at a time if rows have several cells, and the
fewest rows even so (docs/performance_log.md, "Rows in the network at a time")."""


class Limits(NamedTuple):
    """What a model requires of its inputs.

    Attributes:
        device: Device of the model's weights.
        num_classes: Number of classes that it distinguishes.
    """

    device: torch.device
    num_classes: int


ROW_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LABEL_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8)
"""Without unsigned types, most of which PyTorch cannot compare."""


def check_rows(x: object, device: torch.device) -> Tensor:
    """Return the argument if it is a floating tensor [tasks, rows, columns] on the device.

    Raises:
        DataError: The argument is anything else.
    """
    x = _dense("x", x)
    if x.ndim != 3 or x.dtype not in ROW_TYPES:
        raise DataError(
            f"x is a {_described(x)}; give a floating tensor [tasks, rows, columns], for example "
            "x.float()."
        )
    _check_device("x", x, device)
    return x


def check_context(x: object, y: object, categorical: object, *, limits: Limits) -> None:
    """Raise `DataError` for labelled rows that the model cannot take; it names the argument."""
    x = check_rows(x, limits.device)
    y = _dense("y", y)
    if x.shape[:2] != y.shape or x.numel() == 0:
        raise DataError(
            f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; expected [tasks, rows, columns] "
            "and [tasks, rows], with at least one of each."
        )
    if y.dtype not in LABEL_TYPES:
        raise DataError(f"y is a {_described(y)}; give class indices as integers: y.long().")
    _check_device("y", y, limits.device)
    low, high = (int(bound) for bound in y.aminmax())
    if low < 0 or high >= limits.num_classes:
        raise DataError(
            f"Labels lie between {low} and {high}; this model takes class indices 0 to "
            f"{limits.num_classes - 1}."
        )
    if categorical is None:
        return
    categorical = _dense("categorical", categorical)
    expected = (x.shape[0], x.shape[2])
    if categorical.dtype != torch.bool or tuple(categorical.shape) != expected:
        raise DataError(
            f"categorical is a {_described(categorical)}; give booleans [tasks, columns] = "
            f"{list(expected)}."
        )
    _check_device("categorical", categorical, limits.device)


def check_queries(x: object, fitted: torch.Size, device: torch.device) -> None:
    """Raise `DataError` unless `x` has as many tasks and columns as the context (`fitted`)."""
    x = check_rows(x, device)
    if (x.shape[0], x.shape[2]) != tuple(fitted):
        raise DataError(
            f"Queries of {x.shape[0]} tasks with {x.shape[2]} columns do not match the fitted "
            f"context of {fitted[0]} tasks with {fitted[1]} columns."
        )


def check_extension(x: Tensor, categorical: Tensor | None, fitted: torch.Size) -> None:
    """Raise `DataError` unless `x` has as many tasks and columns as the statistics (`fitted`)."""
    if categorical is not None:
        raise DataError("The given statistics already know the categories: leave categorical out.")
    if (x.shape[0], x.shape[2]) != tuple(fitted):
        raise DataError(
            f"The given statistics are of {fitted[0]} tasks of {fitted[1]} columns, and x has "
            f"{x.shape[0]} of {x.shape[2]}; give rows of the same."
        )


def _dense(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise DataError(f"{name} is a {type(value).__name__}; give a tensor: torch.as_tensor.")
    if value.layout != torch.strided:
        raise DataError(f"{name} is a sparse tensor; give a dense one: {name}.to_dense().")
    return value


def _check_device(name: str, tensor: Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise DataError(f"{name} is on {tensor.device} but the model is on {device}; move one.")


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} tensor of shape {tuple(tensor.shape)}"


def chunk_rows(
    device: torch.device,
    most: int | None = None,
    num_cells: int = 1,
    num_rows: int | None = None,
) -> int:
    """The number of rows of a task that go through the network at a time.

    Args:
        device: The device that computes.
        most: The user's maximum, if there is one.
        num_cells: Tokens of a row.
        num_rows: Rows of the context, if it is known. A short one goes through at once for any
            number of cells, since most readouts would project its tokens twice if it were split.

    Raises:
        ConfigError: `most` is not a whole number of at least 1.
    """
    rows = CPU_ROWS if device.type == "cpu" else GPU_ROWS
    if device.type == "cpu" and (num_rows is None or num_rows > rows):
        rows = min(rows, max(MIN_CPU_ROWS, CPU_TOKENS // num_cells))
    if most is None:
        return rows
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ConfigError(f"rows_per_chunk={most} must be a whole number of at least 1.")
    return min(rows, most)

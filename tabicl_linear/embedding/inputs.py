"""What users hand to a model is checked here, before a tensor operation stumbles over it."""

from typing import NamedTuple

import torch

from tabicl_linear.errors import DataError
from tabicl_linear.types import Tensor


class Limits(NamedTuple):
    """What a model takes.

    Attributes:
        device: Where its weights are.
        num_classes: Classes it can tell apart.
    """

    device: torch.device
    num_classes: int


def check_rows(x: Tensor, device: torch.device) -> None:
    """Raise `DataError` unless `x` is a floating tensor [tasks, rows, columns] on the device."""
    if x.ndim != 3 or not x.is_floating_point():
        raise DataError(
            f"x is a {_described(x)}; give a floating tensor [tasks, rows, columns], for example "
            "x.float()."
        )
    _check_device("x", x, device)


def check_context(x: Tensor, y: Tensor, categorical: Tensor | None, *, limits: Limits) -> None:
    """Raise `DataError`, naming the argument, for labelled rows that no model can take."""
    check_rows(x, limits.device)
    if x.shape[:2] != y.shape or x.numel() == 0:
        raise DataError(
            f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; expected [tasks, rows, columns] "
            "and [tasks, rows], with at least one of each."
        )
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
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
    expected = (x.shape[0], x.shape[2])
    if categorical.dtype != torch.bool or tuple(categorical.shape) != expected:
        raise DataError(
            f"categorical is a {_described(categorical)}; give booleans [tasks, columns] = "
            f"{list(expected)}."
        )
    _check_device("categorical", categorical, limits.device)


def _check_device(name: str, tensor: Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise DataError(f"{name} is on {tensor.device} and the model on {device}; move one.")


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} tensor of shape {tuple(tensor.shape)}"

"""Gives the mixers of a model the kernels for the device that it is on."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from tabicl_linear.kernels import backend as backends
from tabicl_linear.kernels.backend import Backend
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.types import Tensor

Placed = TypeVar("Placed", bound="PlacedModule")


class PlacedModule(nn.Module):
    """A module whose mixers have the kernels for the device of its parameters at all times.

    Kernels are chosen when the parameters come to a device or into a dtype, whatever brings them
    there (`to`, `cuda`, a Trainer, unpickling), never while computing. A rule that names kernels of
    its own keeps them.

    Args:
        token_width: Width of the tokens that the mixers take.
    """

    def __init__(self, token_width: int) -> None:
        super().__init__()
        self._token_width = token_width
        self._backend: Backend = "auto"
        self._autocast: tuple[torch.dtype, ...] | None = None
        self._placed_as: tuple[torch.device, torch.dtype] | None = None

    def place(
        self: Placed, backend: Backend, *, autocast: Sequence[torch.dtype] | None = None
    ) -> Placed:
        """Choose the kernels, now and whenever the parameters move; returns the module.

        Args:
            backend: Which kernels to use.
            autocast: Dtypes that autocast will lower to, empty for no autocast: kernels are tried
                in those alone, and PyTorch computes whatever else comes. Unless given, the dtype of
                the parameters and the 16-bit one that suits the device.

        Raises:
            ConfigError: A backend asked for by name does not run here.
        """
        self._backend, self._placed_as = backend, None
        self._autocast = None if autocast is None else tuple(autocast)
        self._settle()
        return self

    def _apply(self: Placed, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Placed:
        super()._apply(fn, recurse)
        self._settle()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        # What was chosen on another machine need not run on this one.
        super().__setstate__(state)
        self._placed_as = None
        self._settle()

    def _settle(self) -> None:
        parameter = next(self.parameters())
        here = parameter.device, parameter.dtype
        if parameter.device.type == "meta" or here == self._placed_as:
            return
        precisions: tuple[torch.dtype, ...] = (parameter.dtype,)
        if parameter.dtype == torch.float32 and self._autocast is None:
            precisions += (backends.autocast_dtype(parameter.device),)
        elif parameter.dtype == torch.float32:
            precisions = self._autocast or precisions
        for mixer in self.modules():
            if isinstance(mixer, SequenceMixer):
                mixer.rule = backends.place(
                    mixer.rule,
                    (_example(mixer, parameter, self._token_width, dtype) for dtype in precisions),
                    device=parameter.device,
                    backend=self._backend,
                )
        self._placed_as = here


@torch.no_grad()
def _example(
    mixer: SequenceMixer, parameter: Tensor, width: int, precision: torch.dtype
) -> Streams:
    """One token as the mixer hands it to its rule: shapes and dtypes of what kernels will see."""
    token = parameter.new_zeros(1, 1, width)
    time = torch.zeros(1, dtype=torch.long, device=parameter.device)
    device, lowered = parameter.device.type, precision != parameter.dtype
    # Weights that are lowered here must not be taken for those of a training step around it.
    with torch.autocast(device, precision if lowered else None, lowered, cache_enabled=False):
        streams, _ = mixer.project(token, time, None, independent=False)
    return streams

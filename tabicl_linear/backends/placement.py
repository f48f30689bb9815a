"""Gives the mixers of a model the kernels for the device that it is on."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from tabicl_linear.backbone.block import Block
from tabicl_linear.backends import choice
from tabicl_linear.backends.choice import Backend
from tabicl_linear.backends.cpp.library import unavailable
from tabicl_linear.backends.cpp.tokenwise import COMPILED
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.nn.tokenwise import TORCH, TokenKernels, TokenWise
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
        self._compile_dense = False
        self._placed_as: tuple[torch.device, torch.dtype] | None = None

    def place(
        self: Placed,
        backend: Backend,
        *,
        autocast: Sequence[torch.dtype] | None = None,
        compile_dense: bool = False,
    ) -> Placed:
        """Choose the kernels, now and whenever the parameters move; returns the module.

        Args:
            backend: Which kernels to use.
            autocast: Dtypes that autocast will lower to, empty for no autocast: kernels are tried
                in those alone, and PyTorch computes whatever else comes. Unless given, the dtype of
                the parameters and the 16-bit one that suits the device.
            compile_dense: Send what is computed between the rules through torch.compile where
                gradients are wanted. The first steps then take half a minute each.

        Raises:
            ConfigError: A backend asked for by name does not run here.
        """
        self._backend, self._placed_as = backend, None
        self._autocast = None if autocast is None else tuple(autocast)
        self._compile_dense = compile_dense
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
        # torch.compile fuses what it sees, and would not see into the kernels in C++.
        fused = TORCH if self._compile_dense else token_kernels(parameter.device, self._backend)
        for module in self.modules():
            if isinstance(module, TokenWise):
                module.kernels = fused
            if isinstance(module, Block):
                module.compiles = self._compile_dense
        precisions: tuple[torch.dtype, ...] = (parameter.dtype,)
        if parameter.dtype == torch.float32 and self._autocast is None:
            precisions += (choice.autocast_dtype(parameter.device),)
        elif parameter.dtype == torch.float32:
            precisions = self._autocast or precisions
        for mixer in self.modules():
            if isinstance(mixer, SequenceMixer):
                mixer.rule = choice.place(
                    mixer.rule,
                    (_example(mixer, parameter, self._token_width, dtype) for dtype in precisions),
                    device=parameter.device,
                    backend=self._backend,
                )
        self._placed_as = here


def token_kernels(device: torch.device, backend: Backend) -> TokenKernels:
    """Token-wise functions for a device: the C++ ones on a CPU where they were built."""
    wanted = backend in ("auto", "compiled") and device.type == "cpu"
    return COMPILED if wanted and unavailable() is None else TORCH


@torch.no_grad()
def _example(
    mixer: SequenceMixer, parameter: Tensor, width: int, precision: torch.dtype
) -> Streams:
    """One token as the mixer hands it to its rule: shapes and dtypes of what kernels will see."""
    token = parameter.new_zeros(1, 1, width)
    positions = torch.zeros(1, dtype=torch.long, device=parameter.device)
    device, lowered = parameter.device.type, precision != parameter.dtype
    # Weights that are lowered here must not be taken for those of a training step around it.
    with torch.autocast(device, precision if lowered else None, lowered, cache_enabled=False):
        streams, _ = mixer.project(token, positions, None, independent=False)
    return streams

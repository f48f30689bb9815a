"""Lets a model compute with the backend that suits the device and dtype of its parameters."""

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from tabicl_linear.backends import dense
from tabicl_linear.backends.choice import Backend, autocast_dtype, choose, tokenwise
from tabicl_linear.kernels.chosen import PLAIN, Choice, using
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.types import Tensor

Module = TypeVar("Module", bound=nn.Module)
Placed = TypeVar("Placed", bound="PlacedModule")


class _Wish(NamedTuple):
    """The arguments of the last call of `PlacedModule.place`."""

    backend: Backend = "auto"
    autocast: tuple[torch.dtype, ...] | None = None
    compile_dense: bool = False


class PlacedModule(nn.Module):
    """A module with its own choice of backend, made for the device and dtype of its parameters.

    The choice is made by `place`, and again at the first computation after the parameters were
    moved to another device or dtype (by `to`, a Trainer, or unpickling).

    Args:
        token_width: Width of the tokens that the mixers take.
    """

    def __init__(self, token_width: int) -> None:
        super().__init__()
        self._token_width = token_width
        self._wish = _Wish()
        self._chosen: tuple[tuple[torch.device, torch.dtype], Choice] | None = None

    def place(
        self: Placed,
        backend: Backend,
        *,
        autocast: Sequence[torch.dtype] | None = None,
        compile_dense: bool = False,
    ) -> Placed:
        """Choose a backend, now and whenever the parameters have moved; return the module.

        Args:
            backend: Which kernels to use.
            autocast: Dtypes that autocast will convert to; empty for no autocast. Kernels are
                tested and used only in these dtypes (if empty, in that of the parameters). By
                default, the dtype of the parameters and the 16-bit dtype that suits the device.
            compile_dense: Run everything between the rules through torch.compile if gradients are
                needed. The first steps then take half a minute each.

        Raises:
            ConfigError: A backend asked for by name does not run here.
        """
        lowered = None if autocast is None else tuple(autocast)
        self._wish, self._chosen = _Wish(backend, lowered, compile_dense), None
        self.choice()
        return self

    def choice(self) -> Choice:
        """The choice for the current device and dtype of the parameters.

        Raises:
            ConfigError: A backend asked for by name does not run on that device.
        """
        parameter = next(self.parameters())
        here = parameter.device, parameter.dtype
        if self._chosen is None or self._chosen[0] != here:
            self._chosen = here, _choose(self, self._wish, parameter, self._token_width)
        return self._chosen[1]

    def computing(self) -> AbstractContextManager[None]:
        """Return the context manager in which the module's choice applies."""
        return using(self.choice())

    def __getstate__(self) -> dict[str, Any]:
        # A choice made on this machine may not run on another one.
        return {**self.__dict__, "_chosen": None}


def _choose(module: nn.Module, wish: _Wish, parameter: Tensor, width: int) -> Choice:
    device = parameter.device
    if device.type == "meta":
        return PLAIN
    # torch.compile fuses PyTorch operations and cannot see into functions in C++.
    fused = dense.compiled() if wish.compile_dense else PLAIN
    functions = PLAIN if fused else tokenwise(device=device, backend=wish.backend)
    with using(functions):
        examples = list(_examples(module, parameter, width, wish.autocast))
    kernels = choose(examples, device=device, backend=wish.backend)
    return {**functions, **kernels, **fused}


def _examples(
    module: nn.Module, parameter: Tensor, width: int, autocast: tuple[torch.dtype, ...] | None
) -> Iterator[tuple[UpdateRule, Streams]]:
    """Yield the rule of every mixer with a token in each precision that the mixer may run in."""
    precisions: tuple[torch.dtype, ...] = (parameter.dtype,)
    if parameter.dtype == torch.float32 and autocast is None:
        precisions += (autocast_dtype(parameter.device),)
    elif parameter.dtype == torch.float32:
        precisions = autocast or precisions
    for mixer in module.modules():
        if isinstance(mixer, SequenceMixer):
            bare = _without_hooks(mixer)
            for precision in precisions:
                yield mixer.rule, _example(bare, parameter, width, precision)


def _without_hooks(module: Module) -> Module:
    """Return the layers with the same parameters, without hooks, which must not see a self-test."""
    twin = copy.copy(module)
    twin._forward_hooks, twin._forward_pre_hooks = OrderedDict(), OrderedDict()
    twin._modules = {
        name: None if child is None else _without_hooks(child)
        for name, child in module._modules.items()
    }
    return twin


@torch.no_grad()
def _example(
    mixer: SequenceMixer, parameter: Tensor, width: int, precision: torch.dtype
) -> Streams:
    """Return one token as the mixer passes it to its rule: the shapes and dtypes of real inputs."""
    token = parameter.new_zeros(1, 1, width)
    positions = torch.zeros(1, dtype=torch.long, device=parameter.device)
    device, lowered = parameter.device.type, precision != parameter.dtype
    # Weights converted here must not enter the autocast cache of an enclosing training step.
    with torch.autocast(device, precision if lowered else None, lowered, cache_enabled=False):
        streams, _ = mixer.project(token, positions, None, independent=False)
    return streams

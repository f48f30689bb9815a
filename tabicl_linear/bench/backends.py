"""Which implementations of a rule can be measured here."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from tabicl_linear.backbone.block import Block
from tabicl_linear.backends.choice import IMPLEMENTATIONS, TORCH, Backend
from tabicl_linear.backends.probe import KernelRule
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.model import InContextModel
from tabicl_linear.nn.tokenwise import TokenWise

NAMES: tuple[Backend, ...] = ("torch", "compiled", "fla")


def implementations(
    rule: UpdateRule, device: torch.device
) -> tuple[dict[str, UpdateRule], dict[str, str]]:
    """The rule computed by every backend that is there for a device, and why others are not.

    A rule without a choice of kernels is there once, as "torch".
    """
    if not isinstance(rule, KernelRule):
        return {"torch": rule}, {}
    found: dict[str, UpdateRule] = {"torch": replace(rule, kernel=TORCH[type(rule)])}
    missing: dict[str, str] = {}
    for name, implementation in IMPLEMENTATIONS.items():
        reason = implementation.unavailable()
        if implementation.device != device.type:
            missing[name] = f"it runs on {implementation.device}"
        elif reason is not None:
            missing[name] = reason
        else:
            found[name] = replace(rule, kernel=implementation.kernels[type(rule)])
    return found, missing


def switches(
    model: InContextModel, *, autocast: torch.dtype | None, compile_dense: bool = False
) -> tuple[dict[str, Callable[[], None]], dict[str, str]]:
    """Calls that give a model the kernels of a backend, and why the others do not run here.

    Backends that come to the same kernels as PyTorch are left out.

    Args:
        model: The model; it keeps its parameters.
        autocast: What autocast will lower to, if anything.
        compile_dense: Also through torch.compile, with the kernels of `auto`.
    """
    lowered = () if autocast is None else (autocast,)
    found: dict[str, Callable[[], None]] = {}
    missing: dict[str, str] = {}
    settled: list[list[_Choice]] = []
    for name in NAMES:
        try:
            choices = _choices(model.place(name, autocast=lowered))
        except ConfigError as error:
            missing[name] = str(error)
            continue
        if choices not in settled:
            settled.append(choices)
            found[name] = partial(_restore, choices)
    if compile_dense:
        model.place("auto", autocast=lowered, compile_dense=True)
        found["auto + torch.compile"] = partial(_restore, _choices(model))
    return found, missing


_Choice = tuple[nn.Module, str, Any]
_CHOSEN = {SequenceMixer: "rule", TokenWise: "kernels", Block: "compiles"}


def _choices(model: InContextModel) -> list[_Choice]:
    """What placing a model has set in its modules."""
    return [
        (module, name, getattr(module, name))
        for module in model.modules()
        for kind, name in _CHOSEN.items()
        if isinstance(module, kind)
    ]


def _restore(choices: list[_Choice]) -> None:
    for module, name, value in choices:
        setattr(module, name, value)

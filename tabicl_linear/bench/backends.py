"""Which implementations of a rule can be measured here."""

from collections.abc import Callable
from dataclasses import replace

import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.backend import IMPLEMENTATIONS, TORCH, Backend
from tabicl_linear.kernels.probe import KernelRule
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.model import InContextModel

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
    model: InContextModel, *, autocast: torch.dtype | None
) -> tuple[dict[str, Callable[[], None]], dict[str, str]]:
    """Calls that give a model the kernels of a backend, and why the others do not run here.

    Backends that come to the same kernels as PyTorch, as for softmax attention, are left out.

    Args:
        model: The model; it keeps its parameters.
        autocast: What autocast will lower to, if anything.
    """
    mixers = [block.mixer for block in model.backbone.layers()]
    found: dict[str, Callable[[], None]] = {}
    missing: dict[str, str] = {}
    settled: list[list[UpdateRule]] = []
    for name in NAMES:
        try:
            model.place(name, autocast=() if autocast is None else (autocast,))
        except ConfigError as error:
            missing[name] = str(error)
            continue
        rules = [mixer.rule for mixer in mixers]
        if rules in settled:
            continue
        settled.append(rules)

        def switch(rules: list[UpdateRule] = rules) -> None:
            for mixer, rule in zip(mixers, rules, strict=True):
                mixer.rule = rule

        found[name] = switch
    return found, missing

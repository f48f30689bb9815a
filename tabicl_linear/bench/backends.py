"""Which implementations of a rule can be measured here."""

from collections.abc import Callable
from functools import partial

import torch

from tabicl_linear.backends import Choice
from tabicl_linear.backends.choice import IMPLEMENTATIONS, Backend
from tabicl_linear.backends.probe import KernelRule, computed_by
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.chosen import PLAIN
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.model import InContextModel

NAMES: tuple[Backend, ...] = ("torch", "cpp", "fla")


def implementations(
    rule: UpdateRule, device: torch.device
) -> tuple[dict[str, Choice], dict[str, str]]:
    """What computes a rule by every backend that is there for a device, and why others are not.

    A rule without a choice of kernels is there once, as "torch".
    """
    if not isinstance(rule, KernelRule):
        return {"torch": PLAIN}, {}
    found: dict[str, Choice] = {"torch": PLAIN}
    missing: dict[str, str] = {}
    for name, implementation in IMPLEMENTATIONS.items():
        reason = implementation.unavailable()
        if implementation.device != device.type:
            missing[name] = f"it runs on {implementation.device}"
        elif reason is not None:
            missing[name] = reason
        else:
            found[name] = computed_by(implementation.kernels[type(rule)], rule)
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
    settled: list[Choice] = []
    for name in NAMES:
        try:
            choice = model.place(name, autocast=lowered).choice()
        except ConfigError as error:
            missing[name] = str(error)
            continue
        if choice not in settled:
            settled.append(choice)
            found[name] = partial(model.adopt, choice)
    if compile_dense:
        model.place("auto", autocast=lowered, compile_dense=True)
        found["auto + torch.compile"] = partial(model.adopt, model.choice())
    return found, missing

"""Rules and models run with a given backend: the one place that knows how."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch

from tabicl_linear.backends import using
from tabicl_linear.backends.choice import IMPLEMENTATIONS, Backend
from tabicl_linear.backends.probe import KernelRule, computed_by
from tabicl_linear.kernels.chosen import PLAIN
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.model import InContextModel

Subject = TypeVar("Subject", UpdateRule, InContextModel)


@contextmanager
def running(
    subject: Subject,
    backend: Backend,
    *,
    autocast: Sequence[torch.dtype] = (),
    compile_dense: bool = False,
) -> Iterator[Subject]:
    """The rule (not probed) or model to call inside, computed by a backend.

    A model is told what autocast will lower it to, and may also go through torch.compile.

    Raises:
        ConfigError: A model cannot be computed by the backend here.
    """
    if isinstance(subject, InContextModel):
        yield subject.place(backend, autocast=autocast, compile_dense=compile_dense)
        return
    choice = PLAIN
    if isinstance(subject, KernelRule) and backend in IMPLEMENTATIONS:
        choice = computed_by(IMPLEMENTATIONS[backend].kernels[type(subject)], subject)
    with using(choice):
        yield subject


def missing(device: torch.device) -> dict[Backend, str | None]:
    """Every backend, with why it cannot compute on a device; None where it can."""
    reasons: dict[Backend, str | None] = {"torch": None}
    for name, implementation in IMPLEMENTATIONS.items():
        elsewhere = implementation.device != device.type
        reason = f"it runs on {implementation.device}" if elsewhere else None
        reasons[name] = reason or implementation.unavailable()  # type: ignore[index]
    return reasons

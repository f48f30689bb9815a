"""Kernels that are right or wrong on purpose, and a way to offer them."""

from tabicl_linear.backends import choice
from tabicl_linear.kernels import delta
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import Kernel


def fast_dtypes(rule):
    """The dtypes for which a rule was given other kernels than plain PyTorch."""
    return set() if rule.kernel is None else set(rule.kernel.scan.args[2])


def scan_right(*args, size):
    return delta.scan(*args, size=size)


def fold_right(*args, size):
    return delta.fold(*args, size=size)


RIGHT = Kernel(scan_right, fold_right)


def raises(*args, size):
    raise RuntimeError("no such instruction\n  on this card")


def put(monkeypatch, kernel, name="compiled"):
    """Put a kernel for the delta rule in the place of that of an implementation."""
    implementation = choice.IMPLEMENTATIONS[name]
    monkeypatch.setitem(
        choice.IMPLEMENTATIONS,
        name,
        implementation._replace(
            kernels={**implementation.kernels, DeltaRule: kernel}, unavailable=lambda: None
        ),
    )

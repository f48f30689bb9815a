"""Kernels that are right or wrong on purpose, and a way to offer them."""

from tabicl_linear.backends import choice
from tabicl_linear.kernels import delta
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import Kernel


def fast_dtypes(choice, plain=delta.TORCH):
    """The dtypes in which a choice computes a rule by other kernels than plain PyTorch."""
    taken = [choice.get(function) for function in plain]
    if taken == [None, None]:
        return set()
    scan, fold = (set(kernel.args[2]) for kernel in taken)
    assert scan == fold
    return scan


def scan_right(x, S, *, size):
    return delta.scan(x, S, size=size)


def fold_right(x, S, *, size):
    return delta.fold(x, S, size=size)


RIGHT = Kernel(scan_right, fold_right)


def raises(x, S, *, size):
    raise RuntimeError("no such instruction\n  on this card")


def put(monkeypatch, kernel, name="cpp"):
    """Offer a kernel for the delta rule as an implementation's, and no token-wise functions."""
    implementation = choice.IMPLEMENTATIONS[name]
    monkeypatch.setitem(
        choice.IMPLEMENTATIONS,
        name,
        implementation._replace(
            kernels={**implementation.kernels, DeltaRule: kernel},
            tokenwise={},
            unavailable=lambda: None,
        ),
    )

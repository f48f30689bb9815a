"""Functions that a backend may replace.

Rules and layers call `chosen(function)`, where the function is in plain PyTorch. Its replacement
comes from a `Choice`, a value that applies only inside `using`: a model enters its own choice while
it computes (`backends/placement.py`). Elsewhere everything is plain PyTorch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

Choice = Mapping[Callable[..., Any], Callable[..., Any]]
"""Replacements of functions in plain PyTorch; functions that are not in it are not replaced."""

PLAIN: Choice = MappingProxyType({})
"""Plain PyTorch throughout."""

# A context variable, so that the choice of one thread does not affect another.
_in_force: ContextVar[Choice] = ContextVar("choice", default=PLAIN)


def chosen(function: Function) -> Function:
    """The function to call in place of `function`: itself, unless the current choice replaces it.

    Under torch.compile it is always the function itself, as only PyTorch operations can be fused.
    """
    if torch.compiler.is_compiling():
        return function
    return cast(Function, _in_force.get().get(function, function))


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Apply a choice to everything that this thread computes within the block."""
    before = _in_force.set(choice)
    try:
        yield
    finally:
        _in_force.reset(before)

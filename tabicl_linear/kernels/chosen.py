"""Functions that a backend may compute in its own way.

Rules and layers name a function in plain PyTorch and call `chosen(function)`. What computes in its
place is a value, a `Choice`, which applies inside `using` and nowhere else: a model enters its
own while it computes (`backends/placement.py`). Outside of that everything is plain PyTorch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

Choice = Mapping[Callable[..., Any], Callable[..., Any]]
"""Functions in plain PyTorch, and what computes in their place; those left out compute."""

PLAIN: Choice = MappingProxyType({})
"""Plain PyTorch throughout."""

# A context variable: the choice of one thread does not affect another.
_in_force: ContextVar[Choice] = ContextVar("choice", default=PLAIN)


def chosen(function: Function) -> Function:
    """What computes `function` here: itself, unless the current choice replaces it.

    torch.compile, which fuses what it can see into, is always shown the function itself.
    """
    if torch.compiler.is_compiling():
        return function
    return cast(Function, _in_force.get().get(function, function))


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Apply a choice to what this thread computes inside the context."""
    before = _in_force.set(choice)
    try:
        yield
    finally:
        _in_force.reset(before)

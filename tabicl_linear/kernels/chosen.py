"""Functions that a backend may replace.

Rules and layers name a function in plain PyTorch and call `chosen(function)`. Its replacement comes
from a value, a `Choice`, which applies only inside `using`: a model enters its own choice while it
computes (`backends/placement.py`). Elsewhere everything is plain PyTorch.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

Choice = Mapping[Callable[..., Any], Callable[..., Any]]
"""Functions in plain PyTorch and their replacements; functions left out are not replaced."""

PLAIN: Choice = MappingProxyType({})
"""Plain PyTorch throughout."""

# A context variable: the choice of one thread does not affect another.
_in_force: ContextVar[Choice] = ContextVar("choice", default=PLAIN)


def chosen(function: Function) -> Function:
    """The function to call in place of `function`: itself, unless the current choice replaces it.

    torch.compile always gets the function itself, since it can only fuse PyTorch operations.
    """
    if torch.compiler.is_compiling():
        return function
    return cast(Function, _in_force.get().get(function, function))


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Apply a choice to everything that this thread computes inside the context."""
    before = _in_force.set(choice)
    try:
        yield
    finally:
        _in_force.reset(before)

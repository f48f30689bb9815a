"""Checks of shapes once for each kind of call, in place of at every call.

What a check says follows from annotations, and those hold types, dtypes and shapes alone. So a call
whose like has been checked need not be checked again. Checks of every call took two fifths of the
time of the contract tests.
"""

import threading
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import jaxtyping
import torch

CHECK_AT_EVERY_CALL = jaxtyping.jaxtyped
TOLD_BY_VALUE = (bool, str, type)
"""Annotations distinguish values of these."""
TOLD_BY_TYPE = {int, float, type(None)}
"""And only the types of these, which are most of what is passed besides tensors."""


def install() -> None:
    """From now on modules that jaxtyping's import hook loads are checked by kinds of calls."""
    jaxtyping.jaxtyped = checked


def kind(value: Any) -> Any:
    """All of a value that an annotation can tell from another."""
    of = type(value)
    if of in TOLD_BY_TYPE:
        return of
    if isinstance(value, torch.Tensor):
        return of, value.dtype, value.shape
    if isinstance(value, (tuple, list)):  # a union of both would be made anew at every call
        return of, *map(kind, value)
    if isinstance(value, dict):
        return of, *map(kind, value), *map(kind, value.values())
    return of, value if isinstance(value, TOLD_BY_VALUE) else None


def checked(of: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """`jaxtyping.jaxtyped`, which the import hook puts above functions and classes."""
    if of is None:
        return partial(checked, typechecker=typechecker)
    if isinstance(of, type):
        return CHECK_AT_EVERY_CALL(of, typechecker=typechecker)
    return _function(of, typechecker)


def _function(function: Callable[..., Any], typechecker: Callable[..., Any]) -> Any:
    own = threading.local()

    def given_again(*_: Any, **__: Any) -> Any:
        return own.__dict__.pop("result")  # not held any longer

    @cache
    def checks() -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Of a call, and of a result that the function has given; made when it is called."""
        return (
            CHECK_AT_EVERY_CALL(function, typechecker=typechecker),
            CHECK_AT_EVERY_CALL(wraps(function)(given_again), typechecker=typechecker),
        )

    results: dict[Any, set[Any]] = {}

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = kind((args, kwargs))
        known = results.get(given)
        if known is None:
            result = checks()[0](*args, **kwargs)
            results[given] = {kind(result)}
            return result
        result = function(*args, **kwargs)
        if (outcome := kind(result)) not in known:
            own.result = result
            checks()[1](*args, **kwargs)
            known.add(outcome)
        return result

    return call

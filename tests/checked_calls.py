"""Checks of shapes once for each kind of call, in place of at every call.

What a check says follows from annotations, and those hold types, dtypes and shapes alone. So a call
whose like has been checked need not be checked again. Where no annotation holds a shape, two calls
are alike if the classes of their arguments are. Checks of every call took two fifths of the time of
the contract tests.
"""

import threading
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any, get_args

import jaxtyping
import torch

CHECK_AT_EVERY_CALL = jaxtyping.jaxtyped
TOLD_BY_VALUE = (bool, str, type)
"""Annotations distinguish values of these."""
TOLD_BY_TYPE = {int, float, type(None)}
"""And only the types of these, which are most of what is passed besides tensors."""
BY_TYPE, BY_SHAPE, BY_PARTS, BY_ITEMS, BY_VALUE, BY_CLASS = range(6)
KNOWN_WITHIN: dict[Any, dict[Any, set[Any]]] = {}
"""What is known of functions that stand within others, by what they are made of."""


def install() -> None:
    """From now on modules that jaxtyping's import hook loads are checked by kinds of calls."""
    jaxtyping.jaxtyped = checked


def kind(value: Any) -> Any:
    """All of a value that an annotation can tell from another."""
    of = type(value)
    told = told_by(of)  # kept for each type: a chain of `isinstance` takes half as long again
    if told == BY_SHAPE:
        return of, value.dtype, value.shape
    if told == BY_TYPE:
        return of
    if told == BY_PARTS:  # a union of lists and tuples would be made anew at every call
        return of, *map(kind, value)
    if told == BY_ITEMS:
        return of, *map(kind, value), *map(kind, value.values())
    return of, value if told == BY_VALUE else None


def kind_without_shapes(value: Any) -> Any:
    """The same for annotations without shapes, but for what containers hold."""
    of = type(value)
    return (of, value) if told_by(of) == BY_VALUE else of


def holds_shape(annotation: Any) -> bool:
    """Whether an annotation is, or is made of, an array with a shape; text may be anything."""
    if isinstance(annotation, type):
        return issubclass(annotation, jaxtyping.AbstractArray)
    return isinstance(annotation, str) or any(map(holds_shape, get_args(annotation)))


def kinds(values: tuple[Any, ...]) -> Any:
    """The kind of each value; those of most values, told without another call for each."""
    told: list[Any] = []
    for value in values:
        of = type(value)
        if of is torch.Tensor:
            told += of, value.dtype, value.shape
        else:
            told.append(of if of in TOLD_BY_TYPE else kind(value))
    return tuple(told)


def kinds_without_shapes(values: tuple[Any, ...]) -> Any:
    """The same for annotations without shapes: classes, which are told at once, and few values."""
    types = tuple(map(type, values))
    told = told_by_value(types)
    return (types, *[values[place] for place in told]) if told else types


@cache
def told_by_value(types: tuple[type, ...]) -> tuple[int, ...]:
    """Where values stand that their classes alone do not tell apart."""
    return tuple(place for place, of in enumerate(types) if told_by(of) == BY_VALUE)


@cache
def told_by(of: type) -> int:
    """By what values of a type are told apart."""
    if of in TOLD_BY_TYPE:
        return BY_TYPE
    if issubclass(of, torch.Tensor):
        return BY_SHAPE
    if issubclass(of, (tuple, list)):
        return BY_PARTS
    if issubclass(of, dict):
        return BY_ITEMS
    return BY_VALUE if issubclass(of, TOLD_BY_VALUE) else BY_CLASS


def checked(of: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """`jaxtyping.jaxtyped`, which the import hook puts above functions and classes."""
    if of is None:
        return partial(checked, typechecker=typechecker)
    if isinstance(of, type):
        return CHECK_AT_EVERY_CALL(of, typechecker=typechecker)
    return _function(of, typechecker)


def _function(function: Callable[..., Any], typechecker: Callable[..., Any]) -> Any:
    own = threading.local()
    has_shapes = any(map(holds_shape, function.__annotations__.values()))
    of, of_all = (kind, kinds) if has_shapes else (kind_without_shapes, kinds_without_shapes)

    def given_again(*_: Any, **__: Any) -> Any:
        return own.__dict__.pop("result")  # not held any longer

    # Each takes milliseconds to make, so it is made when it is called.
    @cache
    def check_call() -> Callable[..., Any]:
        return CHECK_AT_EVERY_CALL(function, typechecker=typechecker)

    @cache
    def check_result() -> Callable[..., Any]:
        return CHECK_AT_EVERY_CALL(wraps(function)(given_again), typechecker=typechecker)

    results = _known_results(function)

    def checked_result(result: Any, outcomes: set[Any], args: Any, kwargs: Any) -> Any:
        if (outcome := of(result)) not in outcomes:
            own.result = result
            check_result()(*args, **kwargs)
            outcomes.add(outcome)
        return result

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = of_all(args)
        if kwargs:  # told values are no tuples, so what ends with one has names before it
            given = given, *kwargs, of_all(tuple(kwargs.values()))
        outcomes = results.get(given)
        if outcomes is None:
            result = check_call()(*args, **kwargs)
            results[given] = {of(result)}
            return result
        return checked_result(function(*args, **kwargs), outcomes, args, kwargs)

    @wraps(function)
    def call_by_classes(*args: Any, **kwargs: Any) -> Any:
        given = types = tuple(map(type, args))  # as `kinds_without_shapes`, without its call
        if told := told_by_value(types):
            given = (types, *[args[place] for place in told])
        if kwargs or (outcomes := results.get(given)) is None:
            return call(*args, **kwargs)
        result = function(*args)
        return result if type(result) in outcomes else checked_result(result, outcomes, args, {})

    return call if has_shapes else call_by_classes


def _known_results(function: Callable[..., Any]) -> dict[Any, set[Any]]:
    """Kinds of arguments that were right, each with the kinds of results that were.

    A function within another is made anew at every call of that one; all that are made of the same
    lines with the same annotations share what is known.
    """
    if "<locals>" not in function.__qualname__:
        return {}
    made = function.__code__, function.__module__, repr(function.__annotations__)
    return KNOWN_WITHIN.setdefault(made, {})

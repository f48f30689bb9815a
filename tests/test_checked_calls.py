"""What is checked once for each kind of call is refused as what is checked at every call."""

from typing import Literal, NamedTuple

import jaxtyping
import pytest
import torch
from beartype import beartype
from checked_calls import CHECK_AT_EVERY_CALL, checked, holds_shape, kind
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from tabicl_linear.kernels import matrix


class Pair(NamedTuple):
    """Two halves."""

    one: Tensor
    two: Tensor


def product(x: Float[Tensor, "a b"], y: Float[Tensor, "b c"]) -> Float[Tensor, "a c"]:
    """Wrong where x holds ones, of which its shape shows nothing."""
    return (x @ y).mT if x.flatten()[0] == 1 else x @ y


def halves(x: Tensor, form: Literal["pair", "list"]) -> "Pair":
    """Wrong where a list is asked for."""
    return Pair(*x.chunk(2)) if form == "pair" else list(x.chunk(2))


PRODUCT = checked(typechecker=beartype)(product)
HALVES = checked(halves, typechecker=beartype)


def test_arguments_of_another_kind_are_checked_also_after_right_ones():
    x, y = torch.zeros(2, 3), torch.zeros(3, 4)
    for _ in range(2):
        assert PRODUCT(x, y).shape == (2, 4)
        for wrong in ((x.mT, y), (x, y.int()), (x[0], y), (x, y.mT), (x, None)):
            with pytest.raises(TypeCheckError, match="parameters"):
                PRODUCT(*wrong)
        with pytest.raises(TypeCheckError, match="parameters"):
            PRODUCT(x, y=y.mT)
    assert PRODUCT(x=torch.zeros(5, 3), y=y).shape == (5, 4)


def test_results_of_another_kind_are_checked_also_after_right_ones():
    zeros, ones, y = torch.zeros(2, 3), torch.ones(2, 3), torch.zeros(3, 4)
    assert PRODUCT(zeros, y).shape == (2, 4)
    for _ in range(2):
        with pytest.raises(TypeCheckError, match="return value"):
            PRODUCT(ones, y)
    assert PRODUCT(zeros, y).shape == (2, 4)


def test_classes_words_and_names_of_classes_are_told_apart():
    x = torch.zeros(4)
    for _ in range(2):
        assert [half.shape for half in HALVES(x, "pair")] == [(2,), (2,)]
    with pytest.raises(TypeCheckError, match="return value"):
        HALVES(x, "list")
    with pytest.raises(TypeCheckError, match="parameters"):
        HALVES(x, "pairs")
    kinds = [kind(value) for value in (Pair(x, x), (x, x), [x, x], "a", "b", int, float, 1, True)]
    assert len(set(kinds)) == len(kinds)
    assert kind({"a": x}) == kind({"a": x + 1}) != kind({"a": x[:2]})


def called(x: Tensor, form: str | None, count: int) -> Tensor:
    """Wrong where there is no form."""
    return x if form else None


def test_without_shapes_other_classes_are_refused_also_after_right_ones():
    """Shapes and dtypes are no part of what is told apart there."""
    assert not any(map(holds_shape, called.__annotations__.values()))
    assert holds_shape(tuple[Float[Tensor, "a"] | None, int])
    call, x = checked(called, typechecker=beartype), torch.zeros(2)
    for _ in range(2):
        assert call(x, "a", 3) is x
        assert call(x, form="a", count=4) is x
        for wrong in ((x, 1, 3), (x, "a", None), (None, "a", 3), (x, "a", "3")):
            with pytest.raises(TypeCheckError, match="parameters"):
                call(*wrong)
        with pytest.raises(TypeCheckError, match="return value"):
            call(x, None, 3)
        with pytest.raises(TypeCheckError, match="return value"):
            call(x, form="", count=3)


def test_the_package_is_checked_so():
    assert jaxtyping.jaxtyped is checked
    assert matrix.decayed_scores.__code__ is PRODUCT.__code__
    assert CHECK_AT_EVERY_CALL is not checked


def test_what_is_known_of_a_function_within_another_stays_when_it_is_made_anew():
    """Whatever it encloses; and other arguments and results are checked as ever."""
    made = []

    def counted(function):
        made.append(function)
        return beartype(function)

    def outer(power):
        def inner(x: Float[Tensor, "a b"]) -> Float[Tensor, "a b"]:
            return x.mT if power == 0 else x**power

        return checked(inner, typechecker=counted)

    x = torch.full((2, 3), 2.0)
    first = outer(1)
    assert not made
    assert torch.equal(first(x), x)
    once = len(made)
    assert once
    assert torch.equal(outer(2)(x), x * x)
    assert len(made) == once
    with pytest.raises(TypeCheckError, match="parameters"):
        outer(2)(x[0])
    with pytest.raises(TypeCheckError, match="return value"):
        outer(0)(x)
    for _ in range(2):  # the same lines, other annotations
        for annotation, holds in ((Float[Tensor, "a"], False), (Float[Tensor, "a b"], True)):
            assert accepts(annotation, x) == holds


def accepts(annotation, x):
    """Whether a function that is made here takes a value."""

    def inner(x: annotation) -> Tensor:
        return x

    try:
        checked(inner, typechecker=beartype)(x)
    except TypeCheckError:
        return False
    return True

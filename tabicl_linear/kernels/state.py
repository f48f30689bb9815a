"""States of the update rules, and helpers for any tree of tensors made of tuples.

A state is a value: rules take one and return a new one, and nothing is changed in place.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch

from tabicl_linear.types import Float, Tensor

Tree = TypeVar("Tree")


class MatrixState(NamedTuple):
    """State of linear attention, GLA, Mamba-2, DeltaNet and Gated DeltaNet, read as o = S q."""

    S: Float[Tensor, "b h v k"]


class GramState(NamedTuple):
    """State of layer-local ridge: sums only, so states of two contexts merge by addition."""

    cross: Float[Tensor, "b h v k"]
    gram: Float[Tensor, "b h k k"]
    rows: int


class CacheState(NamedTuple):
    """State of softmax attention: it grows by one key and one value per token."""

    keys: Float[Tensor, "b t h k"]
    values: Float[Tensor, "b t h v"]


RuleState = MatrixState | GramState | CacheState
"""A rule outside the package may have another one, a NamedTuple of tensors whose first dimension is
that of tasks, and the others of the first tensor are what its mixer gives as the state's shape."""


def state_shape(state: RuleState) -> tuple[int, ...]:
    """Heads, value dimension and key dimension; in states of others the shape of their mixer."""
    if isinstance(state, CacheState):
        return state.keys.shape[2], state.values.shape[3], state.keys.shape[3]
    return tuple(state[0].shape[1:])


def map_tensors(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Apply `function` to every tensor of a tree of (named) tuples; other leaves stay."""
    if isinstance(tree, Tensor):
        return function(tree)  # type: ignore[return-value]
    return map_items(lambda leaf: map_tensors(function, leaf), tree)


def map_items(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Apply `function` to the items of a (named) tuple; anything else is returned as it is."""
    if not isinstance(tree, tuple):
        return tree
    items = map(function, tree)
    # A NamedTuple takes its fields as arguments, a plain tuple takes one iterable.
    has_names = type(tree) is not tuple
    return type(tree)(*items) if has_names else tuple(items)  # type: ignore[return-value]


def row_major(tree: Tree) -> Tree:
    """The tree with every tensor row by row from the start of its memory, as files give them back.

    Matrix products of a transposed view, or of one that starts in the middle of other memory, round
    differently on some processors: a state that was saved and loaded would predict other bits.
    """
    return map_tensors(_row_major, tree)


def _row_major(tensor: Tensor) -> Tensor:
    stride, is_plain = 1, tensor.storage_offset() == 0
    # `is_contiguous` asks nothing of dimensions of size one, which decide how products are made.
    for size, step in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        is_plain = is_plain and step == stride
        stride *= max(size, 1)
    return tensor if is_plain else tensor.clone(memory_format=torch.contiguous_format)


def tensors(tree: object) -> Iterator[Tensor]:
    """All tensors of a tree of tuples, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple):
        for leaf in tree:
            yield from tensors(leaf)


def num_bytes(tree: object) -> int:
    """Bytes of all tensors of a tree."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(tree))

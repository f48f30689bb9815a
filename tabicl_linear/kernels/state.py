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
"""A user's own rule may have another state: a NamedTuple of tensors, whose first dimension counts
tasks. The other dimensions of its first tensor must be the `state_shape` of the mixer."""


def state_shape(state: RuleState) -> tuple[int, ...]:
    """Heads, value dimension and key dimension; for other states, their mixer's `state_shape`."""
    if isinstance(state, CacheState):
        return state.keys.shape[2], state.values.shape[3], state.keys.shape[3]
    return tuple(state[0].shape[1:])


def map_tensors(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Apply `function` to every tensor of a tree of (named) tuples; other leaves are unchanged."""
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
    """The tree with every tensor in the layout of one read from a file.

    It is contiguous, row by row, from the start of its memory. Matrix products of transposed views,
    or of views into other memory, round differently on some processors, so that a state would
    predict other bits after it was saved and loaded.
    """
    return map_tensors(_row_major, tree)


def _row_major(tensor: Tensor) -> Tensor:
    stride, is_plain = 1, tensor.storage_offset() == 0
    # `is_contiguous` ignores strides of dimensions of size one, but matrix products depend on them.
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
    """Total size of all tensors of a tree in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(tree))

"""Fitted matrix states in half precision, for classifiers that only read them."""

from typing import NamedTuple, TypeVar

import torch

from tabicl_linear.kernels.state import MatrixState, map_items
from tabicl_linear.types import Float, Tensor

Tree = TypeVar("Tree")
SMALLEST_SCALE = 1e-30
"""Smallest scale, that of a matrix of zeros."""


class HalfMatrix(NamedTuple):
    """A `MatrixState` that was rounded to 11 significant bits.

    Attributes:
        S: The matrices, each divided by its scale, float16.
        scale: Largest absolute value of each matrix. Scaled, a matrix stays in the range of
            float16, however many rows it sums.
    """

    S: Float[Tensor, "b h v k"]
    scale: Float[Tensor, "b h 1 1"]


def halved(tree: Tree) -> Tree:
    """A tree of tuples whose float32 matrix states are rounded; other leaves stay."""
    if isinstance(tree, MatrixState) and tree.S.dtype == torch.float32:
        scale = tree.S.abs().amax((-2, -1), keepdim=True).clamp(min=SMALLEST_SCALE)
        return HalfMatrix((tree.S / scale).half(), scale)  # type: ignore[return-value]
    return map_items(halved, tree)


def in_full(tree: Tree) -> Tree:
    """The tree with matrix states back in the dtype of their scales, as models read them."""
    if isinstance(tree, HalfMatrix):
        return MatrixState(tree.S.to(tree.scale.dtype) * tree.scale)  # type: ignore[return-value]
    return map_items(in_full, tree)

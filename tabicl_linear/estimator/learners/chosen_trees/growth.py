"""Trees grown by boosting: each asks about what the trees before it leave unexplained."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax
from sklearn.tree import DecisionTreeRegressor

from tabicl_linear.estimator.learners.chosen_trees.trees import Trees

NUM_TREES = 64
DEPTH = 6
FEWEST_IN_LEAF = 3
SHARE_OF_COLUMNS = 0.5
"""Columns that a node chooses from."""
LEARNING_RATE = 0.2
LARGEST_STEP = 4.0
"""Of a leaf, in units of logits, before the learning rate."""


def grow(
    z: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], *, seed: int
) -> tuple[Any, ...]:
    """Trees by gradient boosting of the log-loss of all classes at once (Friedman, 2001).

    Only their questions are used later: what the leaves say is solved on other rows.

    Args:
        z: Standardised rows `[rows, columns]` without missing values.
        labels: Class index of each row, from 0; classes may be lacking.
        seed: Of the columns that nodes choose from.

    Returns:
        Trees as scikit-learn keeps them; `frozen` makes arrays of them.
    """
    present = np.unique(labels)
    r = (labels[:, None] == present).astype(np.float64)
    # Of two classes one says all.
    told = slice(1, None) if len(present) == 2 else slice(None)
    scores = np.tile(np.log(r.mean(0)), (len(z), 1))
    seeds = np.random.default_rng(seed).integers(2**31, size=NUM_TREES)
    grown = []
    for each in seeds:
        shares = softmax(scores, axis=1)
        tree = DecisionTreeRegressor(
            max_depth=DEPTH,
            min_samples_leaf=FEWEST_IN_LEAF,
            max_features=SHARE_OF_COLUMNS,
            random_state=int(each),
        )
        structure = tree.fit(z, (r - shares)[:, told], check_input=False).tree_
        leaf = structure.apply(z)
        steps = _steps(leaf, r - shares, shares * (1 - shares))
        scores += LEARNING_RATE * steps.clip(-LARGEST_STEP, LARGEST_STEP)[leaf]
        grown.append(structure)
    return tuple(grown)


def _steps(
    leaf: npt.NDArray[np.int64], slopes: npt.NDArray[np.float64], curves: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """A step of Newton's method for each node and class, with a curvature of one added."""
    pairs = zip(slopes.T, curves.T, strict=True)
    return np.stack(
        [
            np.bincount(leaf, weights=slope) / (np.bincount(leaf, weights=curve) + 1)
            for slope, curve in pairs
        ],
        axis=1,
    )


def frozen(grown: Sequence[Any]) -> Trees:
    """Trees of scikit-learn as arrays, side by side."""
    columns, thresholds, following, leaves, roots = [], [], [], [], list[int]()
    start, num_leaves = 0, 0
    for tree in grown:
        is_leaf = tree.children_left < 0
        own = np.arange(tree.node_count)
        after = (tree.children_right, tree.children_left)
        columns.append(np.where(is_leaf, 0, tree.feature))
        thresholds.append(np.where(is_leaf, 0.0, tree.threshold))
        following.append(start + np.stack([np.where(is_leaf, own, z) for z in after], axis=1))
        leaves.append(np.where(is_leaf, np.cumsum(is_leaf) - 1 + num_leaves, 0))
        roots.append(start)
        start += tree.node_count
        num_leaves += int(is_leaf.sum())
    return Trees(
        columns=_whole(np.concatenate(columns)),
        thresholds=torch.from_numpy(_rounded_down(np.concatenate(thresholds))),
        following=_whole(np.concatenate(following)),
        leaves=_whole(np.concatenate(leaves)),
        roots=_whole(np.array(roots)),
        depth=max(tree.max_depth for tree in grown),
        num_leaves=num_leaves,
    )


def _rounded_down(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """In float32 and never above: the next larger value of a row may be just as close."""
    short = values.astype(np.float32)
    return np.where(short > values, np.nextafter(short, np.float32(-np.inf)), short)


def _whole(values: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int32))

"""The authors' rule for keeping a draw: context and queries must have the same classes."""

import numpy as np

MAX_TRIES = 10


def is_compatible(rng: np.random.Generator, counts: np.ndarray, split: np.ndarray) -> np.ndarray:
    """Draw for each task whether one of 10 random row orders is compatible at its split.

    An order is compatible if at least two classes occur and the classes of the first `split` rows
    are those of the others. Rows are exchangeable, so the class counts of the first part of a
    random order have a multivariate hypergeometric distribution, and orders need not be drawn.

    Args:
        rng: Source of the draws.
        counts: `[b y]`, rows of each class; all zero for a draw that must not be kept.
        split: `[b]`, rows of the first part.

    Returns:
        `[b]` booleans.
    """
    return np.array(
        [
            np.count_nonzero(task) > 1
            and any(_is_order_compatible(rng, task, int(first)) for _ in range(MAX_TRIES))
            for task, first in zip(counts, split, strict=True)
        ]
    )


def _is_order_compatible(rng: np.random.Generator, counts: np.ndarray, split: int) -> bool:
    """Draw class counts of the first `split` rows, until a class is on only one side."""
    pool, left = int(counts.sum()), split
    for rows in counts[counts > 0].tolist():
        pool -= rows
        first = int(rng.hypergeometric(rows, pool, left))
        if not 0 < first < rows:
            return False
        left -= first
    return True


def draw_splits(rng: np.random.Generator, count: int, num_rows: int) -> np.ndarray:
    """Draw the authors' own splits, uniform on 10 % to 90 % of the rows."""
    low, high = max(int(0.1 * num_rows), 1), max(int(0.9 * num_rows), 1)
    return rng.integers(low, high, count, endpoint=True)

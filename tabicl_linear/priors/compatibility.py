"""Which draws the authors' code keeps: context and queries must have the same classes."""

import numpy as np

MAX_TRIES = 10


def is_compatible(rng: np.random.Generator, counts: np.ndarray, split: np.ndarray) -> np.ndarray:
    """Draw for each task whether one of 10 random row orders is compatible at its split.

    An order is compatible if at least two classes occur and the classes of the first `split` rows
    are those of the others. Rows are exchangeable, so the class counts of the first part of a
    random order follow a multivariate hypergeometric law, and orders need not be drawn.

    Args:
        rng: Source of the draws.
        counts: `[b y]`, rows of each class; all zero for a draw that must not be kept.
        split: `[b]`, rows of the first part.

    Returns:
        `[b]` booleans.
    """
    present = (counts > 0)[:, None]
    left = np.repeat(split[:, None], MAX_TRIES, 1)
    pool = np.repeat(counts.sum(1)[:, None], MAX_TRIES, 1)
    left = np.minimum(left, pool)
    first = np.zeros((len(counts), MAX_TRIES, counts.shape[1]), dtype=np.int64)
    for label, rows in enumerate(counts.T[..., None]):
        pool = pool - rows
        first[..., label] = rng.hypergeometric(np.broadcast_to(rows, pool.shape), pool, left)
        left = left - first[..., label]
    both = (first > 0) & (first < counts[:, None])
    compatible = (both == present).all(2).any(1)
    return compatible & (present.sum((1, 2)) > 1)


def draw_splits(rng: np.random.Generator, count: int, num_rows: int) -> np.ndarray:
    """Draw the authors' own splits, uniform on 10 % to 90 % of the rows."""
    low, high = max(int(0.1 * num_rows), 1), max(int(0.9 * num_rows), 1)
    return rng.integers(low, high, count, endpoint=True)

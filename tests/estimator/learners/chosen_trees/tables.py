"""A table whose classes follow rules of single columns, for tests of chosen trees."""

import numpy as np
import numpy.typing as npt


def ruled_table(
    num_rows: int, *, num_classes: int = 3, seed: int = 0
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Rows of five columns, and labels that count which of some of them are positive."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(num_rows, 5)).astype(np.float32)
    labels = (table[:, : num_classes - 1] > 0).sum(1)
    wrong = rng.random(num_rows) < 0.1
    labels[wrong] = rng.integers(num_classes, size=wrong.sum())
    labels[:num_classes] = np.arange(num_classes)
    return table, labels.astype(np.int64)

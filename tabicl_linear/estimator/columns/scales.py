"""Scales of numbers: z-scores, and logarithms where an outlier would make all others equal."""

from typing import NamedTuple

import numpy as np

from tabicl_linear.estimator.arrays import FloatArray

TOLD_APART = 0.9
"""Least share of different values that float32 z-scores must tell apart; else logarithms do."""
MOST_TRIED = 1000
"""Maximum number of values of a column, evenly spread over their order, that are tested."""


class Scale(NamedTuple):
    """Z-scores by the training values of a column.

    Attributes:
        low, high: Smallest and largest training value.
        mean: Mean of the training values after mapping `low..high` to 0..1.
        std: Their standard deviation (population).
    """

    low: float
    high: float
    mean: float
    std: float

    @classmethod
    def of(cls, values: FloatArray) -> "Scale":
        """The scale of training values."""
        low, high = float(values.min()), float(values.max())
        unit = _to_unit(values, low, high)
        return cls(low, high, float(unit.mean()), float(unit.std()))

    def scores(self, values: FloatArray) -> FloatArray:
        """Z-scores of values of any size."""
        return (_to_unit(values, self.low, self.high) - self.mean) / self.std

    def tells_apart(self, values: FloatArray) -> bool:
        """Whether z-scores in float32, which learners read, tell the values apart.

        If one value is a billion times as far out as the others, these all become the same.
        """
        places = np.linspace(0, len(values) - 1, min(len(values), MOST_TRIED)).astype(np.int64)
        distinct = np.unique(np.sort(values)[places])
        scores = self.scores(distinct).astype(np.float32)
        return len(np.unique(scores)) >= TOLD_APART * len(distinct)


def _to_unit(values: FloatArray, low: float, high: float) -> FloatArray:
    """Values mapped to 0..1 from `low..high`."""
    # Halved before subtracting: the range of a float64 column may itself overflow.
    return (values / 2 - low / 2) / (high / 2 - low / 2)


def middle_and_spread(values: FloatArray) -> tuple[float, float]:
    """The median, and the lower quartile of the distances from it of values that differ from it."""
    middle = float(np.quantile(values, 0.5, method="lower"))
    # Halved, as distances may overflow.
    distances = np.abs(values / 2 - middle / 2)
    spread = 2 * float(np.quantile(distances[distances > 0], 0.25))
    return middle, min(spread, np.finfo(np.float64).max)


def in_logarithms(values: FloatArray, middle: float, spread: float) -> FloatArray:
    """Distances from the middle over the spread: linear up to about 1, logarithmic beyond."""
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        distances = (values / 2 - middle / 2) / (spread / 2)
    scores: FloatArray = np.arcsinh(np.clip(distances, -largest, largest))
    return scores

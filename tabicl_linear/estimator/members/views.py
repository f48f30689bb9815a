"""The preprocessing ensemble: each member sees the same table in another, equivalent form.

This follows the authors' evaluation protocol: members combine a cyclic shift of the classes with
one of the columns, every second member sees power-transformed columns, and each writes the rows in
its own random order. A linear-time learner is sensitive to all of these; the mean over members is
less so.
"""

import logging
import random
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import fminbound
from sklearn.preprocessing import StandardScaler

from tabicl_linear.estimator.arrays import BoolArray, Float32Array, FloatArray, IntArray
from tabicl_linear.estimator.columns.numeric import CLIP

_log = logging.getLogger(__name__)

MAX_POWER_ROWS = 100_000
"""Maximum number of rows that power transforms are fitted on, so that fitting takes seconds."""


class View(NamedTuple):
    """How one ensemble member sees the table.

    Attributes:
        columns: Columns of the table's matrix in the order in which the member sees them.
        power: Whether numeric columns are power-transformed.
        class_shift: The member reads class `y` as class `(y + class_shift) mod C`.
        row_seed: Seed of the order in which context rows are written; None: that of the table.
    """

    columns: IntArray
    power: bool
    class_shift: int
    row_seed: int | None

    def row_order(self, num_rows: int) -> IntArray:
        """The permutation in which the member writes the rows; the same at every call."""
        if self.row_seed is None:
            return np.arange(num_rows)
        return np.random.default_rng(self.row_seed).permutation(num_rows)


def draw_views(columns: Sequence[IntArray], *, num_classes: int, seed: int) -> tuple[View, ...]:
    """Draw the views of an ensemble.

    `columns` holds the columns that each member sees, in the order of the table; all members see
    equally many.
    """
    rng, num_columns = random.Random(seed), len(columns[0])
    class_shifts = rng.sample(range(num_classes), num_classes)
    shifts = list(product(class_shifts, rng.sample(range(num_columns), num_columns)))
    rng.shuffle(shifts)
    views = []
    for member, ascending in enumerate(columns):
        turn, index = divmod(member, len(shifts))
        class_shift, column_shift = shifts[index]
        rng.sample(range(num_columns), num_columns)  # keeps the row orders of earlier versions
        # The alternation flips whenever shifts are used again, to pair them with the other form.
        power = bool((member + turn * (len(shifts) + 1)) % 2)
        own = np.roll(ascending, column_shift)
        views.append(View(own, power, class_shift, rng.randrange(2**32)))
    return tuple(views)


class PowerColumn(NamedTuple):
    """The Yeo-Johnson transform of one column, and mean and deviation of transformed values."""

    exponent: float
    mean: float
    scale: float

    def transform(self, values: FloatArray) -> FloatArray:
        """Transformed and standardised values; NaN stays."""
        # A query far outside the training range may overflow; the caller clips it.
        with np.errstate(over="ignore", invalid="ignore"):
            return (yeo_johnson(values, self.exponent) - self.mean) / self.scale


class PowerColumns:
    """Yeo-Johnson transforms of numeric columns, fitted on the training rows.

    A column whose transform fails keeps its z-scores, and the log says why.
    """

    def __init__(self) -> None:
        self._transforms: dict[int, PowerColumn] = {}

    def fit(
        self, matrix: Float32Array, categorical: BoolArray, columns: IntArray
    ) -> "PowerColumns":
        """Fit a transform for each of `columns` that does not hold category codes.

        With more than `MAX_POWER_ROWS` rows, transforms are fitted on a random sample of them.
        """
        if len(matrix) > MAX_POWER_ROWS:
            rows = np.random.default_rng(0).choice(len(matrix), MAX_POWER_ROWS, replace=False)
            matrix = matrix[np.sort(rows)]
        for column in columns[~categorical[columns]].tolist():
            fitted = _fit_or_reason(matrix[:, [column]].astype(np.float64))
            if isinstance(fitted, PowerColumn):
                self._transforms[column] = fitted
            else:
                _log.info("column %d of the matrix keeps its z-scores: %s", column, fitted)
        return self

    def transform(
        self, matrix: Float32Array, columns: IntArray | None = None, *, in_place: bool = False
    ) -> Float32Array:
        """Rows with numeric columns transformed, clipped at +-100; NaN stays.

        `columns` says which columns of the table `matrix` holds; None means all. With `in_place`,
        the result is written into `matrix`, as a copy of a long table may not fit into memory.
        """
        out = matrix if in_place else matrix.copy()
        for position, column in enumerate(range(matrix.shape[1]) if columns is None else columns):
            transform = self._transforms.get(int(column))
            if transform is None:
                continue
            values = transform.transform(matrix[:, position].astype(np.float64))
            out[:, position] = np.clip(values, -CLIP, CLIP)
        return out


def _fit_or_reason(values: FloatArray) -> PowerColumn | str:
    """The transform that suits a column `[rows, 1]`, or the reason why none is usable."""
    # Set here, since scikit-learn's global setting may ask for frames.
    scaler = StandardScaler().set_output(transform="default")
    present = values[~np.isnan(values)]
    try:
        # NumPy raises errors here, since catching warnings would catch those of all threads.
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            exponent = yeo_johnson_exponent(present)
            scaled = scaler.fit_transform(yeo_johnson(present, exponent)[:, None])
    except (ValueError, FloatingPointError) as error:
        return f"the power transform failed ({error})"
    if not np.isfinite(scaled).all():
        return "the power transform is not finite"
    if scaled.std() < 0.5:
        return "the power transform makes the column constant"
    return PowerColumn(exponent, float(scaler.mean_[0]), float(scaler.scale_[0]))


def yeo_johnson(values: FloatArray, exponent: float) -> FloatArray:
    """The transform of float64 values (Yeo and Johnson, 2000, equation 2.1); NaN stays.

    The same as `scipy.stats.yeojohnson`, without its checks of arguments, which take two thirds of
    its time when one row is predicted.
    """
    is_negative = values < 0
    powered = np.empty_like(values)
    powered[~is_negative] = _powered(np.log1p(values[~is_negative]), exponent)
    powered[is_negative] = -_powered(np.log1p(-values[is_negative]), 2 - exponent)
    return powered


def yeo_johnson_exponent(values: FloatArray) -> float:
    """The maximum-likelihood exponent (Yeo and Johnson, 2000, equation 3.1); 1 for a constant.

    The same search as `scipy.stats.yeojohnson_normmax`, in a seventh of its time: that takes 10 ms
    for any column, most of it to check the arguments of each step.
    """
    if not values.size or values.min() == values.max():
        return 1.0
    above, below = np.log1p(values[values >= 0]), np.log1p(-values[values < 0])
    log_slope = above.sum() - below.sum()

    def loss(exponent: float) -> float:
        parts = _powered(above, exponent), _powered(below, 2 - exponent)
        variance = np.concatenate([parts[0], -parts[1]]).var()
        # With a tiny variance, a column is only rounding.
        if variance < np.finfo(float).tiny:
            return np.inf
        return float(values.size / 2 * np.log(variance) - (exponent - 1) * log_slope)

    # Within these bounds, powers of up to 20 times the largest value do not overflow.
    largest = np.log1p(20 * np.abs(values).max())
    most = (np.log(np.finfo(float).max) + np.log(np.finfo(float).eps)) / 2 / largest
    least = (np.log(np.finfo(float).tiny) - np.log(np.finfo(float).eps)) / 2 / largest
    if not above.size:
        least, most = 2 - most, 2 - least
    elif below.size:
        least, most = max(2 - most, least), min(2 - least, most)
    return float(fminbound(loss, least, most, xtol=1.48e-8))


def _powered(logs: FloatArray, exponent: float) -> FloatArray:
    """The transform of values x >= 0, from `logs`, their log(1 + x)."""
    if abs(exponent) < np.finfo(float).eps:
        return logs
    powered: FloatArray = np.expm1(exponent * logs) / exponent
    return powered


def in_class_order(member_logits: FloatArray, views: Sequence[View]) -> FloatArray:
    """Logits `[member, row, class]` with each member's class shift undone."""
    pairs = zip(member_logits, views, strict=True)
    return np.stack([np.roll(logits, -view.class_shift, axis=-1) for logits, view in pairs])

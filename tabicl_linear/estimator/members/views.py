"""The preprocessing ensemble: each member sees the same table in another, equivalent form.

This follows the authors' evaluation protocol: members combine a cyclic shift of the classes with
one of the columns, every second member sees power-transformed columns, and each writes the rows in
its own random order. A linear-time learner is sensitive to all of these, and the mean over members
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
        class_shift: The member is told class `(y + class_shift) mod C` for class `y`.
        row_seed: Seed of the order in which the context rows are written; None for their own.
    """

    columns: IntArray
    power: bool
    class_shift: int
    row_seed: int | None

    def row_order(self, num_rows: int) -> IntArray:
        """A permutation of the context rows; the same at every call."""
        if self.row_seed is None:
            return np.arange(num_rows)
        return np.random.default_rng(self.row_seed).permutation(num_rows)


def draw_views(columns: Sequence[IntArray], *, num_classes: int, seed: int) -> tuple[View, ...]:
    """Draw the views of an ensemble.

    `columns` are those that each member sees, in the order of the table; all see equally many.
    """
    rng, num_columns = random.Random(seed), len(columns[0])
    class_shifts = rng.sample(range(num_classes), num_classes)
    shifts = list(product(class_shifts, rng.sample(range(num_columns), num_columns)))
    rng.shuffle(shifts)
    views = []
    for member, in_order in enumerate(columns):
        turn, index = divmod(member, len(shifts))
        class_shift, column_shift = shifts[index]
        rng.sample(range(num_columns), num_columns)  # keeps the row orders of earlier versions
        # The alternation flips in each round, so that a reused shift gets the other transform.
        power = bool((member + turn * (len(shifts) + 1)) % 2)
        own = np.roll(in_order, column_shift)
        views.append(View(own, power, class_shift, rng.randrange(2**32)))
    return tuple(views)


class PowerColumn(NamedTuple):
    """The Yeo-Johnson transform of one column, and mean and deviation of its training values."""

    exponent: float
    mean: float
    scale: float

    def transform(self, values: FloatArray) -> FloatArray:
        """Transformed and standardised values; NaN stays."""
        # A query far outside the training range may overflow; the caller clips it.
        with np.errstate(over="ignore", invalid="ignore"):
            return (yeo_johnson(values, self.exponent) - self.mean) / self.scale


class PowerColumns:
    """Yeo-Johnson transforms of the numeric columns, fitted on the training rows.

    A column whose transform fails keeps its z-scores, and the log says why.
    """

    def __init__(self) -> None:
        self._transforms: dict[int, PowerColumn] = {}

    def fit(
        self, matrix: Float32Array, categorical: BoolArray, columns: IntArray
    ) -> "PowerColumns":
        """Fit one transform for each of `columns` that holds no category codes.

        With more than `MAX_POWER_ROWS` rows, transforms are fitted on a random sample.
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

        `columns` are those of the table that `matrix` has, in its order; all if left out. A copy of
        a long table may not fit into memory: with `in_place` `matrix` is written into.
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
    """The transform that suits a column `[rows, 1]`, or why none is usable."""
    # scikit-learn's global setting may ask for frames.
    scaler = StandardScaler().set_output(transform="default")
    present = values[~np.isnan(values)]
    try:
        # Not by catching warnings, as those of all threads would be.
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

    What `scipy.stats.yeojohnson` gives, without its checks of arguments, which take two thirds of
    its time where one row is predicted.
    """
    is_negative = values < 0
    powered = np.empty_like(values)
    powered[~is_negative] = _powered(np.log1p(values[~is_negative]), exponent)
    powered[is_negative] = -_powered(np.log1p(-values[is_negative]), 2 - exponent)
    return powered


def yeo_johnson_exponent(values: FloatArray) -> float:
    """The maximum-likelihood exponent (Yeo and Johnson, 2000, equation 3.1); 1 for a constant.

    What `scipy.stats.yeojohnson_normmax` searches in the same way, in a seventh of its time: it
    takes 10 ms for any column, most of them in what checks the arguments of each step.
    """
    if not values.size or values.min() == values.max():
        return 1.0
    above, below = np.log1p(values[values >= 0]), np.log1p(-values[values < 0])
    log_slope = above.sum() - below.sum()

    def loss(exponent: float) -> float:
        parts = _powered(above, exponent), _powered(below, 2 - exponent)
        variance = np.concatenate([parts[0], -parts[1]]).var()
        # What a tiny variance makes of a column is rounding.
        if variance < np.finfo(float).tiny:
            return np.inf
        return float(values.size / 2 * np.log(variance) - (exponent - 1) * log_slope)

    # Up to 20 times the largest value, powers and their variance are numbers.
    largest = np.log1p(20 * np.abs(values).max())
    most = (np.log(np.finfo(float).max) + np.log(np.finfo(float).eps)) / 2 / largest
    least = (np.log(np.finfo(float).tiny) - np.log(np.finfo(float).eps)) / 2 / largest
    if not above.size:
        least, most = 2 - most, 2 - least
    elif below.size:
        least, most = max(2 - most, least), min(2 - least, most)
    return float(fminbound(loss, least, most, xtol=1.48e-8))


def _powered(logs: FloatArray, exponent: float) -> FloatArray:
    """The transform of values whose log(1 + x) is given."""
    if abs(exponent) < np.finfo(float).eps:
        return logs
    powered: FloatArray = np.expm1(exponent * logs) / exponent
    return powered


def in_class_order(member_logits: FloatArray, views: Sequence[View]) -> FloatArray:
    """Logits `[member, row, class]` with each member's class shift undone."""
    pairs = zip(member_logits, views, strict=True)
    return np.stack([np.roll(logits, -view.class_shift, axis=-1) for logits, view in pairs])

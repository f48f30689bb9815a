"""Linear scores of the classes by all columns of a wide table.

A member of the ensemble sees only some columns of a wide table. Where hundreds of columns each say
a little (embeddings, spectra, fingerprints), no member sees what they say together. A ridge
regression on all of them does, and adds a column for each class, which all members see.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tabicl_linear.estimator.arrays import BoolArray, Float32Array, FloatArray, IntArray
from tabicl_linear.estimator.columns.information import judged_rows
from tabicl_linear.estimator.columns.target_rates import NUM_FOLDS, rated_classes
from tabicl_linear.types import Float, Int, Tensor

FEWEST_COLUMNS = 150
"""With fewer columns there are no scores, as every member sees most columns
(docs/training_log.md)."""
SEEN = 100
"""Columns that one member sees by default."""
MAX_CELLS = 10_000_000
"""Maximum number of cells that the regression is fitted to, so that this takes seconds. The scores
of all other rows are honest without folds."""
TINY = 1e-30
"""Smaller than the sum of squares of any column that varies."""
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Penalties to choose from, in units of the mean diagonal of the matrix that is solved."""


@dataclass(frozen=True)
class LinearScores:
    """A linear function of the columns of a matrix, for each of some classes.

    Attributes:
        means: Mean of each column `[columns]` in the training rows.
        coefficients: Weights `[columns, classes]`; 0 for columns that do not hold numbers.
        shares: Share of each class `[classes]` in the training rows.
    """

    means: FloatArray
    coefficients: FloatArray
    shares: FloatArray

    def of(self, matrix: Float32Array) -> Float32Array:
        """The scores `[rows, classes]` of rows; a missing value counts as the column's mean."""
        scores = _centred(matrix, self.means) @ self.coefficients + self.shares
        return scores.astype(np.float32)


def fit_scores(
    matrix: Float32Array, labels: IntArray, are_numbers: BoolArray
) -> tuple[LinearScores, Float32Array] | None:
    """Regress the classes on the columns that hold numbers.

    Returns the function, and the scores of the training rows, each predicted without the rows of
    its own fold. Returns None if there are few columns, or if the class shares alone or the best
    `SEEN` columns, as many as a member sees, predict as well.
    """
    num_columns = int(np.count_nonzero(are_numbers))
    if num_columns < FEWEST_COLUMNS:
        return None
    classes = rated_classes(labels)
    rows = judged_rows(len(matrix), -(-MAX_CELLS // num_columns))
    numbers = matrix[rows][:, are_numbers]
    num_present = np.count_nonzero(~np.isnan(numbers), axis=0)
    means = np.nansum(numbers, axis=0, dtype=np.float64) / np.maximum(num_present, 1)
    x = torch.from_numpy(_centred(numbers, means))
    hits = (labels[rows, None] == np.array(classes)).astype(np.float64)
    shares = hits.mean(axis=0)
    y = torch.from_numpy(hits - shares)
    folds = torch.from_numpy(_folds(labels[rows]))
    predictions = _cross_fitted(x, y, folds, num_columns)
    errors = (y - predictions).square().mean(dim=(1, 2))
    errors_of_few = (y - _cross_fitted(x, y, folds, SEEN)).square().mean(dim=(1, 2))
    best = int(errors.argmin())
    if errors[best] >= min(errors_of_few.min(), y.square().mean()):
        return None
    coefficients = np.zeros((matrix.shape[1], len(classes)))
    coefficients[are_numbers] = _ridges(x, y, PENALTIES[best : best + 1])[0].numpy()
    all_means = np.zeros(matrix.shape[1])
    all_means[are_numbers] = means
    function = LinearScores(all_means, coefficients, shares)
    scores = function.of(matrix)
    scores[rows] = predictions[best].numpy() + shares
    return function, scores


def _centred(matrix: Float32Array, means: FloatArray) -> FloatArray:
    return np.nan_to_num(matrix - means, copy=False)


def _folds(labels: IntArray) -> IntArray:
    """The fold of each row; the rows of each class are spread over all folds."""
    order = np.lexsort((np.random.default_rng(0).permutation(len(labels)), labels))
    folds = np.empty(len(labels), dtype=np.int64)
    folds[order] = np.arange(len(labels)) % NUM_FOLDS
    return folds


def _cross_fitted(
    x: Float[Tensor, "n m"], y: Float[Tensor, "n c"], folds: Int[Tensor, " n"], num_columns: int
) -> Float[Tensor, "penalties n c"]:
    """Predictions of centred targets with each penalty, without the rows of a row's own fold.

    Only `num_columns` columns are used: those that, one by one, explain most in the other folds.
    """
    predictions = y.new_empty(len(PENALTIES), *y.shape)
    for fold in range(NUM_FOLDS):
        is_own = folds == fold
        others, targets = x[~is_own], y[~is_own]
        explained = (others.T @ targets).square().sum(1) / others.square().sum(0).clamp(min=TINY)
        columns = explained.topk(num_columns).indices
        coefficients = _ridges(others[:, columns], targets, PENALTIES)
        predictions[:, is_own] = x[is_own][:, columns] @ coefficients
    return predictions


def _ridges(
    x: Float[Tensor, "n m"], y: Float[Tensor, "n c"], penalties: Sequence[float]
) -> Float[Tensor, "penalties m c"]:
    """Coefficients of ridge regressions without intercept, solved by the smaller of x'x and xx'."""
    is_tall = len(x) > x.shape[1]
    gram = x.T @ x if is_tall else x @ x.T
    targets = x.T @ y if is_tall else y
    diagonal = gram.diagonal().clone()
    solutions = []
    for penalty in penalties:
        gram.diagonal().copy_(diagonal + penalty * diagonal.mean().clamp(min=TINY))
        solutions.append(torch.cholesky_solve(targets, torch.linalg.cholesky(gram)))
    return torch.stack(solutions) if is_tall else x.T @ torch.stack(solutions)

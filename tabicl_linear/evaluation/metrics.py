"""Scores of class probabilities."""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from tabicl_linear.errors import DataError
from tabicl_linear.evaluation_file import HIGHEST, ROUNDING, value_range

NUM_BINS = 10


class Metrics(NamedTuple):
    """Scores of query rows.

    Attributes:
        roc_auc: For two classes, that of the second; for more, the mean over classes against the
            rest, weighted by their rows. Classes without rows do not count.
        accuracy: Share of rows whose most probable class is theirs.
        log_loss: Mean log-loss in nats.
        ece: Expected calibration error: in 10 bins of equal width of the largest probability, the
            gap between its mean and the accuracy; the mean over bins, weighted by rows.
    """

    roc_auc: float
    accuracy: float
    log_loss: float
    ece: float


METRICS = Metrics._fields


def fault_of(name: str, value: Any) -> str | None:
    """Why `value` cannot be the value of a metric or of a time; None if it can."""
    highest = HIGHEST.get(name, math.inf)
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and 0 <= value <= highest + ROUNDING:
        return None
    return f"its {name} is {value!r} and should be a number {value_range(name)}"


def as_distributions(probabilities: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Probabilities in float32, whose rows are scaled to sum to 1, as the authors score them.

    Raises:
        DataError: Values are negative or not finite, or a row is 0 throughout.
    """
    probabilities = np.asarray(probabilities, dtype=np.float32)
    if not np.isfinite(probabilities).all() or (probabilities < 0).any():
        raise DataError("The classifier gave probabilities that are negative or not finite.")
    sums = probabilities.sum(1, keepdims=True)
    if (sums == 0).any():
        raise DataError("The classifier gave a row the probability 0 for every class.")
    return np.asarray(probabilities / sums, dtype=np.float32)


def mean_log_loss(
    probabilities: npt.NDArray[np.floating[Any]],
    y: npt.NDArray[np.object_],
    classes: npt.NDArray[np.object_],
) -> float:
    """Mean log-loss in nats of the rows whose class the context holds, computed in float64.

    Probabilities are raised to at least 2.2e-16, the smallest step from 1 in float64.

    Args:
        probabilities: `[rows, classes]`, as a classifier returned them. scikit-learn's `log_loss`
            clips float32 ones at 1.2e-7, so that a certain mistake costs at most 15.9 nats.
        y: Labels of the rows.
        classes: Labels of the columns, sorted.
    """
    has_class = np.isin(y, classes)
    wide = probabilities[has_class].astype(np.float64)
    of_label = wide[np.arange(len(wide)), np.searchsorted(classes, y[has_class])] / wide.sum(1)
    return float(-np.log(of_label.clip(np.finfo(np.float64).eps)).mean())


def score(
    probabilities: npt.NDArray[np.floating[Any]],
    y: npt.NDArray[np.object_],
    classes: npt.NDArray[np.object_],
    *,
    is_macro: bool = False,
) -> Metrics:
    """Scores of the rows whose class occurs in the context; no model could predict the others.

    Args:
        probabilities: `[rows, classes]`; rows are divided by their sums.
        y: Labels of the rows.
        classes: Labels of the columns, sorted.
        is_macro: Whether all classes have equal weight in the ROC-AUC, rather than by their rows.

    Raises:
        DataError: These rows have fewer than two classes, so that there is no ROC-AUC.
    """
    has_class = np.isin(y, classes)
    loss = mean_log_loss(probabilities, y, classes)
    probabilities, y = probabilities[has_class], y[has_class]
    present, counts = np.unique(y, return_counts=True)
    if len(present) < 2:
        raise DataError(
            f"The {len(y)} rows to score have {len(present)} of the {len(classes)} classes, and a "
            "ROC-AUC needs two: give a table with more rows."
        )
    probabilities = probabilities / probabilities.sum(1, keepdims=True)
    if len(classes) == 2:
        roc_auc = roc_auc_score(y == classes[1], probabilities[:, 1])
    else:
        columns = probabilities.T[np.searchsorted(classes, present)]
        roc_auc = np.average(
            [roc_auc_score(y == name, p) for name, p in zip(present, columns, strict=True)],
            weights=None if is_macro else counts,
        )
    right = classes[probabilities.argmax(1)] == y
    return Metrics(
        roc_auc=float(roc_auc),
        accuracy=float(right.mean()),
        log_loss=loss,
        ece=calibration_error(probabilities.max(1), right),
    )


def calibration_error(
    confidence: npt.NDArray[np.floating[Any]], right: npt.NDArray[np.bool_]
) -> float:
    """Expected calibration error in 10 bins of equal width; each includes its upper edge.

    Args:
        confidence: Probability of the predicted class, `[rows]`.
        right: Whether the prediction was right, `[rows]`.
    """
    inner = np.linspace(0, 1, NUM_BINS + 1)[1:-1]
    bins = np.searchsorted(inner, confidence)
    gaps = np.bincount(bins, weights=confidence.astype(np.float64) - right)
    return float(np.abs(gaps).sum() / len(right))

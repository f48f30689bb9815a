"""From the members' logits to one distribution of classes: averages and their temperature."""

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

Array = npt.NDArray[np.float64]

PRIOR_DEVIATION = 0.5
"""Of the logarithm of a calibrated temperature around the fixed one: few rows change it little."""
TEMPERATURES = (0.05, 20.0)
"""Range of calibrated temperatures."""
HELD_OUT_FRACTION = 0.2
MAX_HELD_OUT = 2000
"""Rows that a temperature is calibrated on: this fraction of the table, and at most so many (as for
other purposes)."""


def pooled(member_logits: Array, *, temperature: float, average_logits: bool) -> Array:
    """Logarithms of the ensemble's probabilities `[rows, classes]`, up to a constant for each row.

    Args:
        member_logits: Logits `[members, rows, classes]`.
        temperature: Divides the logits.
        average_logits: Take the mean of logits; otherwise the mean of probabilities.
    """
    if average_logits:
        return member_logits.mean(axis=0) / temperature
    logs = log_softmax(member_logits / temperature, axis=-1)
    return np.asarray(logsumexp(logs, axis=0)) - np.log(len(logs))


def log_losses(
    member_logits: Array,
    labels: npt.NDArray[np.int64],
    *,
    temperature: float,
    average_logits: bool,
) -> Array:
    """Negative log-likelihood of the class index of each row, in nats."""
    scores = pooled(member_logits, temperature=temperature, average_logits=average_logits)
    logs = log_softmax(scores, axis=-1)
    return -np.take_along_axis(logs, labels[:, None], axis=-1)[:, 0]


def calibrated_temperature(
    member_logits: Array, labels: npt.NDArray[np.int64], *, fixed: float, average_logits: bool
) -> float:
    """The most probable temperature on rows that the members have not read.

    Its logarithm has a Gaussian prior around that of `fixed`, so the log-loss on these rows is
    never worse than with `fixed`.

    Args:
        member_logits: Logits of the rows `[members, rows, classes]`.
        labels: Class indices of the rows.
        fixed: The temperature to start from.
        average_logits: See `pooled`.
    """

    def loss(log_temperature: float) -> float:
        misfit = log_losses(
            member_logits,
            labels,
            temperature=float(np.exp(log_temperature)),
            average_logits=average_logits,
        ).mean()
        distance = (log_temperature - np.log(fixed)) / PRIOR_DEVIATION
        return float(misfit + distance**2 / (2 * len(labels)))

    found = minimize_scalar(loss, bounds=np.log(TEMPERATURES), method="bounded")
    return float(np.exp(found.x)) if found.fun < loss(np.log(fixed)) else fixed


def held_out_rows(
    labels: npt.NDArray[np.int64],
    seed: int,
    *,
    fraction: float = HELD_OUT_FRACTION,
    most: int = MAX_HELD_OUT,
) -> npt.NDArray[np.bool_]:
    """Which rows to hold out: drawn at random, never the last row of a class in the context.

    Args:
        labels: Class indices of the table.
        seed: Of the draw.
        fraction: Of the table.
        most: At most so many rows.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    kept = np.zeros(len(labels), dtype=bool)
    kept[order[np.unique(labels[order], return_index=True)[1]]] = True
    count = min(int(fraction * len(labels)), most)
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[order[~kept[order]][:count]] = True
    return held_out

"""Pools the members' logits into one distribution over the classes."""

import numpy as np
from scipy.special import log_softmax, logsumexp

from tabicl_linear.estimator.arrays import FloatArray, IntArray


def pooled(member_logits: FloatArray, *, temperature: float, average_logits: bool) -> FloatArray:
    """Logarithms of the ensemble's probabilities `[rows, classes]`, up to a constant for each row.

    Logits `[members, rows, classes]` are divided by the temperature. Then the logits are averaged
    over the members or, without `average_logits`, the probabilities.
    """
    if average_logits:
        return member_logits.mean(axis=0) / temperature
    logs = log_softmax(member_logits / temperature, axis=-1)
    return np.asarray(logsumexp(logs, axis=0)) - np.log(len(logs))


def log_losses(
    member_logits: FloatArray, labels: IntArray, *, temperature: float, average_logits: bool
) -> FloatArray:
    """Negative log-likelihood of the class index of each row, in nats."""
    scores = pooled(member_logits, temperature=temperature, average_logits=average_logits)
    logs = log_softmax(scores, axis=-1)
    return -np.take_along_axis(logs, labels[:, None], axis=-1)[:, 0]

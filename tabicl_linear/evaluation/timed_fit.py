"""Fits a classifier, lets it predict, and takes the times of both."""

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin, clone


class TimedPredictions(NamedTuple):
    """Probabilities that a classifier gave to query rows, and what they cost.

    Attributes:
        probabilities: `[rows, classes]`, as the classifier returned them.
        classes: Labels of the context, sorted.
        fit_seconds: Wall-clock time of fitting.
        predict_seconds: Wall-clock time of predicting.
        fit_cpu_seconds: CPU time of fitting, of all threads of this process.
        predict_cpu_seconds: CPU time of predicting, of all threads of this process.
    """

    probabilities: npt.NDArray[np.floating[Any]]
    classes: npt.NDArray[np.object_]
    fit_seconds: float
    predict_seconds: float
    fit_cpu_seconds: float
    predict_cpu_seconds: float


def try_out(
    estimator: ClassifierMixin,
    context: pd.DataFrame,
    labels: npt.NDArray[np.object_],
    queries: pd.DataFrame,
) -> TimedPredictions:
    """Fit a clone of the estimator on the context and let it predict the queries.

    The classifier gets labels 0, 1, ..., since not every classifier takes others.
    """
    estimator = clone(estimator)
    classes, codes = np.unique(labels, return_inverse=True)
    with warnings.catch_warnings():
        # Warnings of more rows or columns than a model was trained on, of solvers that stop early
        # and of categories that the context lacks are to be expected under the protocol.
        warnings.simplefilter("ignore")
        clocks = [(time.perf_counter(), time.process_time())]
        estimator.fit(context, codes)
        clocks.append((time.perf_counter(), time.process_time()))
        probabilities = np.asarray(estimator.predict_proba(queries))
        clocks.append((time.perf_counter(), time.process_time()))
    (fit, fit_cpu), (predict, predict_cpu) = np.diff(clocks, axis=0).tolist()
    return TimedPredictions(probabilities, classes, fit, predict, fit_cpu, predict_cpu)

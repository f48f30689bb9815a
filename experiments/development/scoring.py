"""Scores of a classifier on a split of a development table, and means over all tables."""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from tqdm import tqdm

from experiments.development.tables import Rows, Table
from tabicl_linear import TabICLLinearClassifier


class Scores(NamedTuple):
    """Scores over the query rows whose class occurs in the context.

    Attributes:
        roc_auc: ROC-AUC of each present class against the rest, weighted by its rows.
        accuracy: Accuracy of the most probable class.
        log_loss: Mean log-loss, in nats.
        fit_seconds: CPU time of fitting, over all threads.
        predict_seconds: CPU time of predicting, over all threads.
    """

    roc_auc: float
    accuracy: float
    log_loss: float
    fit_seconds: float
    predict_seconds: float


class Means(NamedTuple):
    """Means over the splits of a table and then over the tables."""

    roc_auc: float
    accuracy: float
    log_loss: float


METRICS = Means._fields


def score(estimator: ClassifierMixin, table: Table, split: tuple[Rows, Rows]) -> Scores:
    """Fit a clone of the estimator on the context rows, as a raw frame, and score the queries."""
    context, queries = split
    estimator = clone(estimator)
    with warnings.catch_warnings():
        # More rows or columns than a model was trained on, solvers that stop early and categories
        # missing from the context are part of the protocol.
        warnings.simplefilter("ignore")
        began = time.process_time()
        estimator.fit(table.x.iloc[context], table.y[context])
        fitted = time.process_time()
        probabilities = estimator.predict_proba(table.x.iloc[queries])
        predicted = time.process_time()
    known = np.isin(table.y[queries], estimator.classes_)
    return Scores(
        *_metrics(probabilities[known], table.y[queries][known], estimator.classes_),
        fit_seconds=fitted - began,
        predict_seconds=predicted - fitted,
    )


def _metrics(
    probabilities: npt.NDArray[np.float64],
    y: npt.NDArray[np.object_],
    classes: npt.NDArray[np.object_],
) -> Means:
    probabilities = probabilities / probabilities.sum(1, keepdims=True)
    if len(classes) == 2:
        roc_auc = roc_auc_score(y == classes[1], probabilities[:, 1])
    else:
        present, counts = np.unique(y, return_counts=True)
        columns = probabilities.T[np.searchsorted(classes, present)]
        roc_auc = np.average(
            [roc_auc_score(y == name, p) for name, p in zip(present, columns, strict=True)],
            weights=counts,
        )
    accuracy = accuracy_score(y, classes[probabilities.argmax(1)])
    loss = log_loss(y, probabilities, labels=list(classes))
    return Means(float(roc_auc), float(accuracy), float(loss))


def development_scores(model: Path, tables: Sequence[Table]) -> pd.DataFrame:
    """Scores of a checkpoint or export by the classifier with its 8 members.

    Returns:
        A row for each table and split: columns table, split and those of `Scores`.
    """
    estimator = TabICLLinearClassifier(model)
    work = [(table, *item) for table in tables for item in enumerate(table.splits())]
    with tqdm(work, desc="development tables", disable=None) as progress:
        rows = [
            {"table": table.name, "split": number, **score(estimator, table, split)._asdict()}
            for table, number, split in progress
        ]
    return pd.DataFrame(rows)


def mean(scores: pd.DataFrame) -> Means:
    """Means of one model's rows."""
    means = scores.groupby("table")[list(METRICS)].mean().mean()
    return Means(*(float(means[name]) for name in METRICS))


def development_mean(model: Path, tables: Sequence[Table]) -> Means:
    """Mean scores of a checkpoint or export."""
    return mean(development_scores(model, tables))

"""Scores of a classifier on a split of a development table, and means over all tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from sklearn.base import ClassifierMixin
from tqdm import tqdm

from experiments.development.tables import Rows, Table
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.evaluation import metrics
from tabicl_linear.evaluation.timed_fit import try_out


class Scores(NamedTuple):
    """Scores over the query rows whose class occurs in the context.

    Attributes:
        roc_auc: Mean ROC-AUC of each present class against the rest, weighted by its rows or
            equally, as the table's protocol says; with two classes, that of the second.
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
    trial = try_out(estimator, table.x.iloc[context], table.y[context], table.x.iloc[queries])
    scores = metrics.score(
        trial.probabilities, table.y[queries], trial.classes, is_macro=table.protocol.is_macro
    )
    return Scores(
        *(getattr(scores, name) for name in METRICS),
        fit_seconds=trial.fit_cpu_seconds,
        predict_seconds=trial.predict_cpu_seconds,
    )


def development_scores(model: Path, tables: Sequence[Table]) -> pd.DataFrame:
    """Score a checkpoint or export by the classifier, with its default of 8 members.

    Returns:
        A row for each table and split: columns protocol, table, split and those of `Scores`.
    """
    estimator = TabICLLinearClassifier(model)
    work = [(table, *item) for table in tables for item in enumerate(table.splits())]
    with tqdm(work, desc="development tables", disable=None) as progress:
        rows = [
            {"protocol": table.protocol.name, "table": table.name, "split": number}
            | score(estimator, table, split)._asdict()
            for table, number, split in progress
        ]
    return pd.DataFrame(rows)


def mean(scores: pd.DataFrame) -> Means:
    """Average one model's rows."""
    means = scores.groupby("table")[list(METRICS)].mean().mean()
    return Means(*(float(means[name]) for name in METRICS))


def development_mean(model: Path, tables: Sequence[Table]) -> Means:
    """Mean scores of a checkpoint or export."""
    return mean(development_scores(model, tables))

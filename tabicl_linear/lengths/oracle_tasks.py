"""Compares fitted states with optimised ones, on synthetic datasets and on a real table."""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import StratifiedKFold

from tabicl_linear.analysis.state_optimisation import Epoch, OracleOptions, optimise_states
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.rows.labels import checked_labels
from tabicl_linear.lengths.datasets import DatasetOptions, draw_dataset
from tabicl_linear.lengths.scores import METRICS, score
from tabicl_linear.model import InContextModel
from tabicl_linear.parquet import Kind
from tabicl_linear.types import Bool, Float, Int, Tensor

SPLIT_SEED = 42

COLUMNS: Mapping[str, Kind] = {
    "dataset": "whole",
    "model": "text",
    "num_rows": "whole",
    **dict.fromkeys(METRICS, "number"),
    **dict.fromkeys([f"oracle_{metric}" for metric in METRICS], "number"),
    "start_loss": "number",
    "best_loss": "number",
    "best_epoch": "whole",
    "epochs": "whole",
    "smallest_update": "number",
    "largest_update": "number",
    "fit_seconds": "number",
    "oracle_seconds": "number",
}
"""Columns of the table of `compare`, with their kinds."""


class Limits(NamedTuple):
    """The largest tables that every model takes.

    Attributes:
        columns: Most columns.
        classes: Most classes.
    """

    columns: int
    classes: int

    def check(self, columns: int, classes: int) -> None:
        """Check the size of a table.

        Raises:
            DataError: It has more columns or classes, or only one class.
        """
        if classes < 2:
            raise DataError("the target has one class only; give rows of at least two.")
        if columns > self.columns or classes > self.classes:
            raise DataError(
                f"{columns} columns that vary and {classes} classes: the models take "
                f"{self.columns} and {self.classes}; leave some out."
            )


def limits(models: Mapping[str, InContextModel]) -> Limits:
    """The largest tables that all of the models take."""
    every = [model.architecture for model in models.values()]
    return Limits(min(a.num_features for a in every), min(a.num_classes for a in every))


class Task(NamedTuple):
    """A context and the rows to predict from it.

    Attributes:
        x: Context rows.
        y: Their labels.
        categorical: Which columns hold categories.
        queries: Rows to predict.
        targets: Their labels.
        num_classes: Classes of the task.
        weighted: Whether the ROC-AUC weighs classes by their share, as for real tables.
    """

    x: Float[Tensor, "1 c m"]
    y: Int[Tensor, "1 c"]
    categorical: Bool[Tensor, "1 m"]
    queries: Float[Tensor, "1 q m"]
    targets: Int[Tensor, " q"]
    num_classes: int
    weighted: bool


@dataclass(frozen=True)
class SyntheticTasks:
    """Datasets of `tabicl-linear lengths`, each with its whole context.

    Attributes:
        options: Sizes and seed of the datasets.
        count: Number of datasets.
    """

    options: DatasetOptions
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Task:
        dataset = draw_dataset(self.options, index)
        return Task(
            *dataset.context(),
            categorical=dataset.categorical,
            queries=dataset.queries,
            targets=dataset.targets,
            num_classes=self.options.num_classes,
            weighted=False,
        )


class TableTasks:
    """Stratified folds of a table, encoded as by the classifier but without its ensemble.

    Warnings about columns are issued once, for all rows, and not again for each fold.

    Args:
        table: Columns without the target.
        labels: Labels of the rows.
        folds: Number of folds.
        limits: The largest tables that every model takes.

    Raises:
        DataError: Columns or labels cannot be used, or a class has fewer rows than folds.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        labels: pd.Series,
        *,
        folds: int,
        limits: Limits,
    ) -> None:
        self.table, self.folds = table, folds
        classes, self.codes = np.unique(checked_labels(labels), return_inverse=True)
        self.num_classes = len(classes)
        limits.check(len(TablePreprocessor().fit(table).used), self.num_classes)
        fewest = int(np.bincount(self.codes).min())
        if fewest < folds:
            raise DataError(
                f"a class has {fewest} rows, fewer than {folds} folds: leave it out, or take "
                "fewer folds."
            )
        splitter = StratifiedKFold(folds, shuffle=True, random_state=SPLIT_SEED)
        self.splits = list(splitter.split(table, self.codes))

    def __len__(self) -> int:
        return self.folds

    def __getitem__(self, index: int) -> Task:
        rows, queries = self.splits[index]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            encoder = TablePreprocessor().fit(self.table.iloc[rows])
            x, q = (encoder.transform(self.table.iloc[part]) for part in (rows, queries))
        codes = torch.from_numpy(self.codes)
        return Task(
            x=torch.from_numpy(x).unsqueeze(0),
            y=codes[rows].unsqueeze(0),
            categorical=torch.from_numpy(encoder.categorical).unsqueeze(0),
            queries=torch.from_numpy(q).unsqueeze(0),
            targets=codes[queries],
            num_classes=self.num_classes,
            weighted=True,
        )


def compare(
    models: Mapping[str, InContextModel],
    tasks: Sequence[Task] | SyntheticTasks | TableTasks,
    options: OracleOptions,
    index: int,
) -> pd.DataFrame:
    """Score every model on a task, with its fitted states and with optimised ones.

    Returns:
        A row for each model: dataset, model, num_rows; roc_auc, accuracy and log_loss with the
        fitted states, and, prefixed with `oracle_`, with the optimised ones; start_loss and
        best_loss on the held-out rows; best_epoch and epochs; smallest_update and largest_update,
        the relative updates of layers at the best epoch; fit_seconds and oracle_seconds.
    """
    task = tasks[index]
    return pd.DataFrame(
        {"dataset": index, "model": name} | _compare(model, task, options)
        for name, model in models.items()
    )


def _compare(model: InContextModel, task: Task, options: OracleOptions) -> dict[str, Any]:
    x, y, categorical, queries = (z.to(model.device) for z in task[:4])
    epochs: list[Epoch] = []
    start = time.perf_counter()
    with torch.no_grad():
        fitted = model.fit(x, y, categorical=categorical)
    middle = time.perf_counter()
    optimised = optimise_states(model, fitted, x, y, options, on_epoch=epochs.append)
    seconds = {"fit_seconds": middle - start, "oracle_seconds": time.perf_counter() - middle}
    scores: dict[str, float] = {}
    for prefix, state in (("", fitted), ("oracle_", optimised)):
        with torch.no_grad():
            logits = model.predict(state, queries)[0].cpu()
        values = score(logits, task.targets, task.num_classes, weighted=task.weighted)
        scores |= {f"{prefix}{metric}": values[metric] for metric in METRICS}
    best = next(epoch for epoch in reversed(epochs) if bool(epoch.improved))
    return {
        "num_rows": x.shape[1],
        **scores,
        "start_loss": float(epochs[0].held_out),
        "best_loss": float(best.held_out),
        "best_epoch": best.number,
        "epochs": epochs[-1].number,
        "smallest_update": min(best.relative_updates),
        "largest_update": max(best.relative_updates),
        **seconds,
    }

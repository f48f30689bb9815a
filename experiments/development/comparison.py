"""Means of every model, and mean paired differences over tables with their intervals."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from experiments.development.scoring import METRICS, Scores
from tabicl_linear import pages

TITLES = {"roc_auc": "ROC-AUC", "accuracy": "accuracy", "log_loss": "log-loss"}
LOWER_IS_BETTER = ("log_loss",)
CONFIDENCE = 0.95


class Difference(NamedTuple):
    """The paired difference of two models (first minus second) over tables.

    Attributes:
        mean: Mean of the differences between the tables' means over splits.
        half_width: Half the 95 % interval (Student's t over tables); NaN for a single table.
        wins: Tables on which the model is better.
        losses: Tables on which it is worse.
        p: p-value of Wilcoxon's signed-rank test, two-sided and not corrected. Unlike the interval,
            it is hardly affected by a single table far from the others.
    """

    mean: float
    half_width: float
    wins: int
    losses: int
    p: float

    def __str__(self) -> str:
        low, high = self.mean - self.half_width, self.mean + self.half_width
        interval = f"{self.mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        return f"{interval} {self.wins}:{self.losses}, p {self.p:.2g}"


def by_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Average over splits: a row for each table, columns (score, model) in order of `scores`."""
    columns = list(Scores._fields)
    means = scores.groupby(["table", "model"], sort=False)[columns].mean().unstack("model")
    models = list(dict.fromkeys(scores["model"]))
    return means.reindex(columns=pd.MultiIndex.from_product([columns, models]))


def difference(tables: pd.DataFrame, metric: str, model: str, against: str) -> Difference:
    """Return the paired difference of two models in one score of a table from `by_table`."""
    differences = (tables[metric, model] - tables[metric, against]).to_numpy()
    count = len(differences)
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) if count > 1 else np.nan
    error = differences.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    better = -differences if metric in LOWER_IS_BETTER else differences
    return Difference(
        mean=float(differences.mean()),
        half_width=float(quantile * error),
        wins=int((better > 0).sum()),
        losses=int((better < 0).sum()),
        p=float(stats.wilcoxon(differences).pvalue) if differences.any() else 1.0,
    )


def markdown(scores: pd.DataFrame, against: str) -> str:
    """Write means and differences for each protocol and, if there are several, for all tables."""
    protocols = list(dict.fromkeys(scores["protocol"]))
    parts = [scores[scores["protocol"] == name] for name in protocols]
    if len(parts) > 1:
        parts.append(scores)
    return "\n\n".join(_compared(part, against) for part in parts)


def _compared(scores: pd.DataFrame, against: str) -> str:
    """Write two tables: each model's means over tables, and its differences from `against`."""
    tables = by_table(scores)
    models = list(dict.fromkeys(scores["model"]))
    seconds = tables["fit_seconds"] + tables["predict_seconds"]
    kinds = " and ".join(dict.fromkeys(scores["protocol"]))
    rows = []
    for model in models:
        means = [f"{tables[metric, model].mean():.4f}" for metric in METRICS]
        mean_seconds = f"{seconds[model].mean():.2f}" if seconds[model].notna().all() else ""
        rows.append([model, *means, mean_seconds])
    header = [f"{len(tables)} tables ({kinds})", *TITLES.values(), "CPU seconds a split"]
    parts = [pages.markdown(header, rows)]
    differences = [
        [model, *(str(difference(tables, metric, model, against)) for metric in METRICS)]
        for model in models
        if model != against
    ]
    if differences:
        parts += [
            f"Minus {against}: mean over tables [95 % interval] wins:losses, p of Wilcoxon's test",
            pages.markdown(["", *TITLES.values()], differences),
        ]
    return "\n\n".join(parts)

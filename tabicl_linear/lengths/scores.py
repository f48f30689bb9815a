"""Scores of a reading; means, intervals and the paper's normalisation of many scores."""

import numpy as np
import pandas as pd
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

from tabicl_linear import pages
from tabicl_linear.errors import DataError, counted
from tabicl_linear.types import Float, Int, Tensor

METRICS = ("roc_auc", "accuracy", "log_loss")
NORMALISED = ("roc_auc", "accuracy")
SHORT_ROWS = 1000
"""Longest context, in rows, whose scores can define the 0 of normalised scores."""
CONFIDENCE = 0.95


def score(
    logits: Float[Tensor, "q y"],
    targets: Int[Tensor, " q"],
    num_classes: int,
    *,
    weighted: bool = False,
) -> dict[str, float]:
    """ROC-AUC, accuracy and log-loss of predictions; all are NaN if a logit is not finite.

    Args:
        logits: Logits of the queries.
        targets: Classes of the queries; every class must occur.
        num_classes: Number of classes of the dataset; further logits are ignored.
        weighted: For the ROC-AUC, weight each class by its share, as for real tables, instead of
            equally, as for synthetic datasets.
    """
    wide = logits[:, :num_classes].double()
    if not bool(wide.isfinite().all()):
        return dict.fromkeys(METRICS, float("nan"))
    probabilities, labels = wide.softmax(1).numpy(), targets.cpu().numpy()
    one_hot = np.eye(num_classes)[labels]
    return {
        "roc_auc": float(
            roc_auc_score(one_hot, probabilities, average="weighted" if weighted else "macro")
        ),
        "accuracy": float((wide.argmax(1) == targets.cpu()).double().mean()),
        "log_loss": float(torch.nn.functional.cross_entropy(wide, targets.cpu())),
    }


def normalise(results: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Add columns `normalised_roc_auc` and `normalised_accuracy` to results (appendix C.1).

    For each dataset, the lowest score of any reference model at up to 1,000 rows becomes 0, and the
    highest at any length becomes 1. NaN where both are equal.

    Args:
        results: Columns dataset, model, num_rows and the scores.
        reference: The same columns for the reference set, on the same datasets.

    Raises:
        DataError: The reference has no score at up to 1,000 rows for one of the datasets.
    """
    short = reference[reference["num_rows"] <= SHORT_ROWS]
    missing = set(results["dataset"]) - set(short["dataset"])
    if missing:
        raise DataError(
            f"the reference set has no score at {SHORT_ROWS} rows or fewer of "
            f"{counted(len(missing), 'dataset')}, the first of which is {min(missing)}: "
            "normalised scores take one; read shorter contexts, too."
        )
    normalised = results.copy()
    for metric in NORMALISED:
        low = results["dataset"].map(short.groupby("dataset")[metric].min())
        high = results["dataset"].map(reference.groupby("dataset")[metric].max())
        span = (high - low).where(high > low)
        normalised[f"normalised_{metric}"] = (results[metric] - low) / span
    return normalised


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean of every score over datasets, for every model and length.

    Returns:
        A row for each model and length, in the order of `results`: model, num_rows, datasets; for
        every score its mean, half the width of the 95 % interval of the mean (Student's t;
        `_interval`) and the number of defined values (`_defined`); and the mean seconds.
    """
    metrics = [name for name in results if name in METRICS or name.startswith("normalised_")]
    rows = []
    for (model, num_rows), group in results.groupby(["model", "num_rows"], sort=False):
        row = {"model": model, "num_rows": num_rows, "datasets": len(group)}
        for metric in metrics:
            values = group[metric].dropna().to_numpy(float)
            row[metric] = float(values.mean()) if len(values) else np.nan
            row[f"{metric}_interval"] = half_width(values)
            row[f"{metric}_defined"] = len(values)
        for part in ("fit_seconds", "predict_seconds"):
            row[part] = float(group[part].mean())
        rows.append(row)
    return pd.DataFrame(rows)


def half_width(values: np.ndarray) -> float:
    """Half the width of the 95 % interval of the mean (Student's t); NaN for less than 2 values."""
    count = len(values)
    if count < 2:
        return np.nan
    error = np.std(values, ddof=1) / np.sqrt(count)
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * error)


def markdown(summary: pd.DataFrame, metric: str) -> str:
    """A metric's means and intervals: a row for each model, a column for each length."""
    lengths = sorted(summary["num_rows"].unique())
    lines = []
    for model in summary["model"].unique():
        rows = summary[summary["model"] == model].set_index("num_rows")
        cells = [str(model)]
        for length in lengths:
            if length not in rows.index:
                cells.append("")
                continue
            row = rows.loc[length]
            cells.append(f"{row[metric]:.4f}{pages.plus_minus(row[f'{metric}_interval'])}")
        lines.append(cells)
    return pages.markdown(["rows", *(f"{length:,}" for length in lengths)], lines)

"""Scores of a reading, and what many of them say: means, intervals, the paper's normalisation."""

import numpy as np
import pandas as pd
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score

from tabicl_linear import pages
from tabicl_linear.errors import DataError
from tabicl_linear.types import Float, Int, Tensor

METRICS = ("roc_auc", "accuracy", "log_loss")
NORMALISED = ("roc_auc", "accuracy")
SHORT_ROWS = 1000
"""Longest context whose scores count as the floor of normalised scores."""
CONFIDENCE = 0.95


def score(
    logits: Float[Tensor, "q y"],
    targets: Int[Tensor, " q"],
    num_classes: int,
    *,
    weighted: bool = False,
) -> dict[str, float]:
    """ROC-AUC, accuracy and log-loss of the first logits; all NaN where one is not finite.

    Args:
        logits: Of the queries.
        targets: Their classes, each of which must occur.
        num_classes: Classes of the dataset; further logits do not count.
        weighted: Weigh the areas of one class against the rest by the share of the class, as for
            real tables, instead of equally, as for synthetic datasets.
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
    """Results with columns `normalised_roc_auc` and `normalised_accuracy` (appendix C.1).

    For each dataset the lowest score of the reference at up to 1,000 rows becomes 0 and its highest
    at any length 1, whatever the model; NaN where both are the same.

    Args:
        results: Columns dataset, model, num_rows and the scores.
        reference: Likewise, of the reference set on the same datasets.

    Raises:
        DataError: The reference has no score at 1,000 rows or fewer of a dataset.
    """
    short = reference[reference["num_rows"] <= SHORT_ROWS]
    missing = set(results["dataset"]) - set(short["dataset"])
    if missing:
        raise DataError(
            f"the reference set has no score at {SHORT_ROWS} rows or fewer of "
            f"{len(missing)} datasets, the first of which is {min(missing)}: normalised scores "
            "take one; read shorter contexts, too."
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
        A row for each model and length, in the order of `results`: model, num_rows, datasets, and
        for every score its mean, half the width of the 95 % interval of the mean (Student's t;
        `_interval`) and how many values are defined (`_defined`), and mean seconds.
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
    """Half the width of the 95 % interval of the mean (Student's t); NaN for a single value."""
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

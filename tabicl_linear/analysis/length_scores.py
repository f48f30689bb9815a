"""Scores of predictions after contexts of several lengths."""

from collections.abc import Sequence

import pandas as pd
import torch

from tabicl_linear.analysis.probe_tasks import Probe
from tabicl_linear.model import InContextModel
from tabicl_linear.training.scores import cross_entropy, roc_auc


def length_scores(model: InContextModel, probe: Probe, lengths: Sequence[int]) -> pd.DataFrame:
    """Loss, accuracy and macro one-vs-rest ROC-AUC of the probe's queries by context length.

    Args:
        model: The model.
        probe: Tasks.
        lengths: Context lengths in rows; each is fitted on its own.

    Returns:
        Columns task, length, loss (mean cross-entropy), accuracy, roc_auc (NaN where the queries
        have one class).
    """
    x, labels = probe.queries
    parts = []
    for length in lengths:
        with torch.no_grad():
            logits = model.predict(probe.fit(model, length), x)
        pairs = zip(logits, labels, strict=True)
        columns = {
            "task": range(1, len(labels) + 1),
            "length": length,
            "loss": cross_entropy(logits, labels).double().cpu().numpy(),
            "accuracy": (logits.argmax(-1) == labels).double().mean(1).cpu().numpy(),
            "roc_auc": [float(roc_auc(*pair, average="macro")) for pair in pairs],
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)

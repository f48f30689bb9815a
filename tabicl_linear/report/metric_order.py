"""The metrics of results: their titles, their order, and which way is better."""

from typing import NamedTuple


class Metric(NamedTuple):
    """A metric of `results.csv`.

    Attributes:
        title: Column heading as in the paper's tables.
        higher_is_better: False for losses.
    """

    title: str
    higher_is_better: bool

    @property
    def heading(self) -> str:
        """Title with an arrow in the better direction."""
        return f"{self.title} {'↑' if self.higher_is_better else '↓'}"


METRICS = {
    "roc_auc": Metric("ROC-AUC", True),
    "accuracy": Metric("ACC", True),
    "log_loss": Metric("log-loss", False),
    "ece": Metric("ECE", False),
}
"""All metrics in the order of the tables; the paper has the first two."""

TIMES = {
    "fit_seconds": "fit",
    "predict_seconds": "predict",
    "fit_cpu_seconds": "fit, CPU",
    "predict_cpu_seconds": "predict, CPU",
}
"""Titles of times, in seconds per fold, which `results.csv` lists as metrics; never compared."""

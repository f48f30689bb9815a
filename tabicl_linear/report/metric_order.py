"""The metrics of results: how they are written, and which way is better."""

from typing import NamedTuple


class Metric(NamedTuple):
    """A metric of `results.csv`.

    Attributes:
        title: As the paper's tables head their columns.
        higher_is_better: False for losses.
    """

    title: str
    higher_is_better: bool

    @property
    def heading(self) -> str:
        """Title, and an arrow that says which way is better."""
        return f"{self.title} {'↑' if self.higher_is_better else '↓'}"


METRICS = {
    "roc_auc": Metric("ROC-AUC", True),
    "accuracy": Metric("ACC", True),
    "log_loss": Metric("log-loss", False),
    "ece": Metric("ECE", False),
}
"""All metrics, in the order in which tables show them; the paper has the first two."""

TIMES = {
    "fit_seconds": "fit",
    "predict_seconds": "predict",
    "fit_cpu_seconds": "fit, CPU",
    "predict_cpu_seconds": "predict, CPU",
}
"""Times of a fold in the column of metrics, in seconds; shown beside the scores, never compared."""

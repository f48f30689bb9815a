"""Shows how predictions change with the length of the context, while a model trains."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from tabicl_linear.analysis.cards import score_card
from tabicl_linear.analysis.length_scores import length_scores
from tabicl_linear.analysis.probe_tasks import Probe
from tabicl_linear.callbacks.probing import SeveralLengths
from tabicl_linear.model import InContextModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = ("loss", "accuracy", "roc_auc")


class LengthProbe(SeveralLengths):
    """Logs loss, accuracy and macro one-vs-rest ROC-AUC after contexts of several lengths.

    The Parquet file has a row for each task and length. TensorBoard gets the means over tasks,
    `within/length_probe/<score>/rows_<n>`, and a picture of each score over lengths.

    Args:
        every_n_steps: Optimiser steps between looks at the model; 0 for no looks.
        num_tasks: Probe tasks.
        lengths: Context lengths in rows; if None, from an eighth to four times the longest table
            of training.
    """

    name: ClassVar[str] = "length_probe"
    charts: ClassVar[Mapping[str, Sequence[str]]] = {
        score.replace("_", " "): [f"length_probe/{score}/.*"] for score in SCORES
    }

    def look(self, model: InContextModel, probe: Probe) -> pd.DataFrame:
        """Scores by task and length."""
        assert probe.trained is not None
        return length_scores(model, probe, self.lengths(probe.trained))

    def scalars(self, table: pd.DataFrame) -> dict[str, float]:
        """Means over tasks, by score and length."""
        means = table.groupby("length")[list(SCORES)].mean()
        return {
            f"length_probe/{score}/rows_{length:06d}": float(value)
            for score in SCORES
            for length, value in means[score].items()
        }

    def pictures(self, table: pd.DataFrame, probe: Probe) -> "dict[str, Figure]":
        """A picture of each score over lengths."""
        return {
            f"length_probe/{score}": score_card(table, score, trained=probe.trained)
            for score in SCORES
        }

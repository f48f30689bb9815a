"""Loss, accuracy and ROC-AUC of each task, and their means over tasks."""

from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torchmetrics import MeanMetric, SumMetric
from torchmetrics.functional.classification import multiclass_auroc

from tabicl_linear.types import Float, Int, Tensor


class Scores(NamedTuple):
    """One number per task.

    Attributes:
        loss: Cross-entropy over all logits, mean over the query rows.
        accuracy: Share of query rows whose largest logit is the label's.
        roc_auc: See `roc_auc`; NaN where it is not defined.
    """

    loss: Float[Tensor, "b"]
    accuracy: Float[Tensor, "b"]
    roc_auc: Float[Tensor, "b"]


def cross_entropy(logits: Float[Tensor, "b q y"], labels: Int[Tensor, "b q"]) -> Float[Tensor, "b"]:
    """Mean cross-entropy over each task's queries, over all logits, in float32 or float64."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    per_row = functional.cross_entropy(wide.flatten(0, 1), labels.flatten(), reduction="none")
    return per_row.view_as(labels).mean(dim=1)


def roc_auc(
    logits: Float[Tensor, "q y"],
    labels: Int[Tensor, "q"],
    average: Literal["weighted", "macro"] = "weighted",
) -> Float[Tensor, ""]:
    """Area under the ROC curve of one task, one class against the rest, averaged over classes.

    Only classes present in `labels` count, and probabilities are renormalised to them. NaN if only
    one is present.

    Args:
        logits: Predictions.
        labels: Classes.
        average: Weights of the classes: their prevalence, or all equal (macro).
    """
    present, targets = labels.unique(return_inverse=True)
    if len(present) < 2:
        return torch.full((), torch.nan, device=logits.device)
    probabilities = logits[:, present].float().softmax(dim=-1)
    return multiclass_auroc(
        probabilities, targets, num_classes=len(present), average=average, validate_args=False
    )


def score(logits: Float[Tensor, "b q y"], labels: Int[Tensor, "b q"]) -> Scores:
    """Score every task of a batch."""
    return Scores(
        loss=cross_entropy(logits, labels),
        accuracy=(logits.argmax(dim=-1) == labels).float().mean(dim=1),
        roc_auc=torch.stack([roc_auc(*task) for task in zip(logits, labels, strict=True)]),
    )


class MeanScores(nn.Module):
    """Means of the scores over all tasks since the last reset, of all processes.

    Tasks without a defined ROC-AUC are left out of its mean and counted in `roc_auc_undefined`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loss = MeanMetric()
        self.accuracy = MeanMetric()
        self.roc_auc = MeanMetric()
        self.roc_auc_undefined = SumMetric()

    def update(self, scores: Scores) -> None:
        """Add the tasks of a batch."""
        defined = ~scores.roc_auc.isnan()
        self.loss.update(scores.loss)
        self.accuracy.update(scores.accuracy)
        self.roc_auc.update(scores.roc_auc.nan_to_num(), defined.float())
        self.roc_auc_undefined.update((~defined).sum())

    def named(self, prefix: str) -> dict[str, MeanMetric | SumMetric]:
        """The metrics under their logged names, such as `val/loss`."""
        return {
            f"{prefix}/loss": self.loss,
            f"{prefix}/accuracy": self.accuracy,
            f"{prefix}/roc_auc": self.roc_auc,
            f"{prefix}/roc_auc_undefined": self.roc_auc_undefined,
        }

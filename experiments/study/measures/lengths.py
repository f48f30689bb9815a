"""Scores on synthetic datasets at many lengths of their context (appendix C.1)."""

from pathlib import Path

import pandas as pd

from experiments.study.scale import Scale, Tree
from tabicl_linear import load_model
from tabicl_linear.lengths.datasets import DatasetOptions
from tabicl_linear.lengths.run import RunOptions, read_dataset
from tabicl_linear.model import InContextModel
from tabicl_linear.priors.base import Prior

SCORES = ["dataset", "num_rows", "roc_auc", "accuracy", "log_loss"]


def measure(
    checkpoint: Path, scale: Scale, device: str, prior: Prior | None = None
) -> pd.DataFrame:
    """Columns dataset, num_rows, roc_auc, accuracy, log_loss; the same datasets for all units.

    They are of the TabPFN v1 prior, or of another one.
    """
    model = load_model(checkpoint).to(device)
    run = RunOptions(options(scale.lengths, model))
    parts = [
        read_dataset({"model": model}, run, index, prior)
        for index in range(scale.lengths["datasets"])
    ]
    return pd.concat(parts, ignore_index=True)[SCORES]


def options(about: Tree, model: InContextModel) -> DatasetOptions:
    """Datasets with as many rows as the longest length, of no more columns than the model takes."""
    rows = tuple(about["rows"])
    return DatasetOptions(
        max_rows=rows[-1],
        lengths=rows,
        num_features=columns_of(about, model),
        num_classes=about["classes"],
    )


def columns_of(about: Tree, model: InContextModel) -> int:
    """The scale's columns; those of the minimal example are fewer."""
    return min(about["columns"], model.architecture.num_features)

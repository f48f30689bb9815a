"""Scores of Delta that reads its context in blocks and averages their predictions (figure 2a)."""

from pathlib import Path

import pandas as pd
import torch

from experiments.study.measures.lengths import SCORES, options
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear.lengths.datasets import draw_dataset
from tabicl_linear.lengths.readings import read_blocks
from tabicl_linear.lengths.scores import score
from tabicl_linear.mixers.delta import DeltaNet

TRAINED_LENGTHS = 3
"""Rows of a block, in trained lengths: the paper's 3,000 rows of models trained with 1,000."""


@torch.no_grad()
def measure(checkpoint: Path, scale: Scale, device: str) -> pd.DataFrame:
    """Columns dataset, num_rows, roc_auc, accuracy, log_loss, at the lengths that have blocks.

    The datasets are the first of `lengths`. Empty for models other than DeltaNet, which alone the
    paper reads in blocks.
    """
    model, about = load_model(checkpoint).to(device), scale.blocks
    if not isinstance(model.backbone.layers()[0].mixer, DeltaNet):
        return pd.DataFrame(columns=SCORES)
    of, block_rows = options(scale.lengths, model), TRAINED_LENGTHS * scale.trained_rows
    rows = []
    for index in range(about["datasets"]):
        on_cpu = draw_dataset(of, index)
        dataset = on_cpu.to(model.device)
        for reading in read_blocks(model, dataset, tuple(about["rows"]), block_rows):
            scores = score(reading.logits, on_cpu.targets, of.num_classes)
            rows.append({"dataset": index, "num_rows": reading.num_rows} | scores)
    return pd.DataFrame(rows)[SCORES]

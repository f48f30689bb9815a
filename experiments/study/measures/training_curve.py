"""Loss of training and validation by step."""

from pathlib import Path

import pandas as pd

from experiments.study.scale import Scale


def measure(checkpoint: Path, scale: Scale, device: str) -> pd.DataFrame:
    """Columns step, quantity (train_loss, val_loss, val_roc_auc, datasets_per_second), value."""
    names = {
        "train/loss": "train_loss",
        "val/loss": "val_loss",
        "val/roc_auc": "val_roc_auc",
        "wall_clock/datasets_per_s": "datasets_per_second",
    }
    metrics = pd.read_csv(checkpoint.parent / "metrics.csv")
    long = metrics.rename(columns=names).melt(
        "step", [name for name in names.values()], var_name="quantity"
    )
    return long.dropna().astype({"step": int, "value": float}).reset_index(drop=True)

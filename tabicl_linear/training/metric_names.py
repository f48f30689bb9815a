"""Names of the metrics that training logs.

TensorBoard shows groups (the part before the slash) in alphabetical order and unfolds the first
two, so losses come first and speed comes last.
"""

LOSS = "train/loss"
LEARNING_RATE = "train/lr"
GRADIENT_NORM = "train/total_gradient_norm"
DATASETS = "wall_clock/datasets_per_s"
ROWS = "wall_clock/rows_per_s"
VALIDATION = ("val/loss", "val/accuracy", "val/roc_auc")
METRICS = (
    *(LOSS, LEARNING_RATE, GRADIENT_NORM, DATASETS, ROWS),
    *(*VALIDATION, "val/roc_auc_undefined"),
)
"""All metrics that a callback can monitor."""

"""Measures the datasets and rows that training processes per second."""

import time
from collections import deque
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.metric_names import DATASETS, ROWS


class Throughput(Callback):
    """Logs datasets and rows per second over the last batches, summed over all processes.

    Time spent in validation does not count.

    Args:
        window: Batches to average over.

    Raises:
        ConfigError: `window` is below 1.
    """

    def __init__(self, window: int = 50) -> None:
        if window < 1:
            raise ConfigError(f"throughput.window={window}: give at least 1 batch.")
        self._ends: deque[tuple[float, int, int]] = deque(maxlen=window)
        self._mark = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._mark = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: TaskBatch,
        batch_idx: int,
    ) -> None:
        """Add the batch and log both rates."""
        now = time.monotonic()
        datasets, rows = batch.x.shape[:2]
        self._ends.append((now - self._mark, datasets, datasets * rows))
        self._mark = now
        seconds, datasets, rows = (sum(column) for column in zip(*self._ends, strict=True))
        per_second = trainer.world_size / max(seconds, 1e-9)
        rates = {DATASETS: datasets * per_second, ROWS: rows * per_second}
        pl_module.log_dict(rates, prog_bar=True, batch_size=1)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restart the clock."""
        self._mark = time.monotonic()

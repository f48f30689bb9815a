"""Chooses the number of CPU threads by the time that training steps take."""

import time
from statistics import median
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import ConfigError

TRIALS = 3
"""Training steps with each number of threads in a comparison."""
SHORTEST = 3 * TRIALS
"""Steps of a comparison of three numbers of threads: the one in use, half and twice as many."""
LEAST_GAIN = 0.9
"""Another number of threads is chosen if its time per row is at most this share of the present."""


class ThreadCount(Callback):
    """Compares numbers of threads at intervals, by the time of real steps, and takes the fastest.

    Threads wait for each other at every operation. If another program occupies one of their cores,
    all wait for that one, and fewer threads are faster. A run starts with torch's number of
    threads, which is never exceeded; comparisons try half and twice the number in use. Sums are
    rounded differently with another number of threads, so a run with comparisons cannot be
    repeated bit by bit.

    Args:
        every_n_steps: Batches from one comparison to the next; 0 keeps the number of threads.

    Raises:
        ConfigError: The interval is shorter than a comparison.
    """

    def __init__(self, every_n_steps: int = 0) -> None:
        if every_n_steps and every_n_steps < SHORTEST:
            raise ConfigError(
                f"thread_count.every_n_steps={every_n_steps}: a comparison takes up to "
                f"{SHORTEST} steps; give 0 or at least as many."
            )
        self.every_n_steps = every_n_steps
        self._most = self._chosen = torch.get_num_threads()
        self._batches = 0
        self._seconds: dict[int, list[float]] = {}
        self._began = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the number of threads at the start."""
        self._most = self._chosen = torch.get_num_threads()
        self._batches = 0

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: TaskBatch, batch_idx: int
    ) -> None:
        """Set the number of threads for this batch."""
        if not self.every_n_steps or self._most == 1:
            return
        place = self._batches % self.every_n_steps
        if place == 0:
            nearby = self._chosen, self._chosen // 2, min(2 * self._chosen, self._most)
            self._seconds = {count: [] for count in nearby if count}
        counts = list(self._seconds) * TRIALS
        torch.set_num_threads(counts[place] if place < len(counts) else self._chosen)
        self._began = time.perf_counter()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: TaskBatch,
        batch_idx: int,
    ) -> None:
        """Record the time of a batch of a comparison, and choose after the last of them."""
        place = self._batches % self.every_n_steps if self.every_n_steps else 0
        self._batches += 1
        trials = len(self._seconds) * TRIALS
        if place >= trials:
            return
        elapsed = time.perf_counter() - self._began
        self._seconds[torch.get_num_threads()].append(elapsed / batch.y.numel())
        if place == trials - 1:
            self._choose()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the number of threads at the start."""
        torch.set_num_threads(self._most)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Restore the number of threads at the start."""
        torch.set_num_threads(self._most)

    def _choose(self) -> None:
        times = {count: median(seconds) for count, seconds in self._seconds.items()}
        fastest = min(times, key=times.__getitem__)
        if times[fastest] <= LEAST_GAIN * times[self._chosen]:
            self._chosen = fastest

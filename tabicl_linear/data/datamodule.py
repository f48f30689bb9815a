"""Feeds streams of the prior's tasks to Lightning and keeps track of the next training batch."""

import signal
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.data.stream import FixedBatches, PriorStream, Stage
from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.base import Prior, check_repeatable
from tabicl_linear.priors.shapes import TaskShapes

# Validation and test tasks do not follow the run's seed, so that they are the same in all runs.
EVALUATION_SEED = 1510


class PriorDataModule(LightningDataModule):
    """Synthetic tasks: an endless training stream, and fixed validation and test sets.

    Training draws on the device that trains, or on the CPU in worker processes; validation and
    test tasks are always drawn on the CPU and are therefore the same everywhere. `ConfigError` if
    worker processes are asked to draw on a GPU.

    Args:
        prior: Distribution of the tasks.
        shapes: Rows, split, columns and tasks per batch.
        val_batches: Batches of the validation set; each has at least 100 query rows.
        test_batches: Batches of the test set, likewise.
        num_workers: Processes that draw ahead of training on the CPU, each on one thread, which may
            round otherwise than several; 0 draws in the main process.
        seed: Determines the training stream; not negative.
        device: Where training tasks are drawn. `auto`: where training runs if `num_workers` is 0,
            and the CPU otherwise.
    """

    def __init__(
        self,
        prior: Prior,
        shapes: TaskShapes,
        val_batches: int = 64,
        test_batches: int = 64,
        num_workers: int = 0,
        seed: int = 0,
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        super().__init__()
        if seed < 0:
            raise ConfigError(f"seed={seed}: use a number that is not negative.")
        if num_workers < 0 or val_batches < 1 or test_batches < 1:
            raise ConfigError(
                f"num_workers={num_workers}, val_batches={val_batches}, test_batches="
                f"{test_batches}: use at least 0 workers and at least 1 batch each."
            )
        if device == "cuda" and num_workers > 0:
            raise ConfigError(
                f"data.device=cuda with data.num_workers={num_workers}: worker processes draw on "
                "the CPU; set data.num_workers=0, or data.device=cpu."
            )
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("data.device=cuda, but no CUDA device is available; use auto or cpu.")
        if shapes.row_range[0] < prior.fewest_rows:
            raise ConfigError(
                f"num_rows={shapes.row_range[0]}, in a stage or from the start: the prior "
                f"{type(prior).__name__} needs at least {prior.fewest_rows} rows; raise it."
            )
        self.prior = prior
        self.shapes = shapes
        self.val_batches = val_batches
        self.test_batches = test_batches
        self.num_workers = num_workers
        self.seed = seed
        self.device = device
        self.next_index = 0
        self._train_stream: PriorStream | None = None
        self._evaluation: dict[Stage, FixedBatches] = {}

    def stream(
        self, stage: Literal["train", "validate", "test"], rank: int | None = None
    ) -> PriorStream:
        """The stream of a stage: `.batch(i)` draws its i-th batch.

        Args:
            stage: Only training batches depend on the seed.
            rank: Process whose training batches are drawn; this one if None.
        """
        if stage == "train":
            own, replayed = 0, 0
            if self.trainer is not None:
                own = self.trainer.global_rank
                replayed = int(self.trainer.overfit_batches)  # type: ignore[attr-defined]
            return PriorStream(
                self.prior,
                self.shapes,
                seed=self.seed,
                stage=Stage.TRAIN,
                rank=own if rank is None else rank,
                device=self._draw_device(),
                start=self.next_index,
                replayed=replayed,
            )
        return PriorStream(
            self.prior, self.shapes, seed=EVALUATION_SEED, stage=Stage[stage.upper()]
        )

    def train_dataloader(self) -> DataLoader[TaskBatch]:
        """Batches from `next_index` on, without end; `DataError` if a seed gives other tasks."""
        self._train_stream = self.stream("train")
        shape = self._train_stream.shape(self.next_index)
        check_repeatable(self.prior, shape._replace(batch_size=1))
        return DataLoader(
            self._train_stream,
            batch_size=None,
            num_workers=self.num_workers,
            worker_init_fn=_ignore_stop_signals,
            pin_memory=self._is_copied(self._train_stream.device),
        )

    def val_dataloader(self) -> DataLoader[TaskBatch]:
        """The validation set, divided among the processes; `ConfigError` if it is too small."""
        return self._evaluation_loader("validate", self.val_batches)

    def test_dataloader(self) -> DataLoader[TaskBatch]:
        """The test set, divided among the processes; `ConfigError` if it is too small."""
        return self._evaluation_loader("test", self.test_batches)

    def transfer_batch_to_device(
        self, batch: TaskBatch, device: torch.device, dataloader_idx: int
    ) -> TaskBatch:
        """Copy a batch to the device; to a CUDA device, without waiting for the copy."""
        return batch.to(device, non_blocking=device.type == "cuda")

    def on_after_batch_transfer(self, batch: TaskBatch, dataloader_idx: int) -> TaskBatch:
        """Count a training batch as used as soon as it has been sent to the model's device."""
        if self.trainer is not None and self.trainer.training:
            self.next_index = batch.index + 1
            if self._train_stream is not None:
                # A loader that is iterated again (limit_train_batches) continues here; with
                # overfit_batches the stream repeats its first batches, whatever its start.
                self._train_stream.start = self.next_index
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The index of the first training batch that has not been used yet."""
        return {"next_index": self.next_index}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the training stream where the checkpoint left it."""
        self.next_index = state_dict["next_index"]

    def _evaluation_loader(
        self, stage: Literal["validate", "test"], num_batches: int
    ) -> DataLoader[TaskBatch]:
        key = Stage[stage.upper()]
        if key not in self._evaluation:
            share = (0, 1)
            if self.trainer is not None:
                share = (self.trainer.global_rank, self.trainer.world_size)
            if num_batches < share[1]:
                option = {"validate": "val_batches", "test": "test_batches"}[stage]
                raise ConfigError(
                    f"data.{option}={num_batches} with {share[1]} processes, among which batches "
                    f"are divided: give at least {share[1]}."
                )
            self._evaluation[key] = FixedBatches(self.stream(stage), num_batches, share)
        pin_memory = self._is_copied(torch.device("cpu"))
        return DataLoader(self._evaluation[key], batch_size=None, pin_memory=pin_memory)

    def _is_copied(self, drawn_on: torch.device) -> bool:
        """Whether batches go from the CPU to a CUDA device, which page-locked memory speeds up."""
        if self.trainer is None or drawn_on.type != "cpu":
            return False
        return bool(self.trainer.strategy.root_device.type == "cuda")

    def _draw_device(self) -> torch.device:
        if self.num_workers > 0 or self.device == "cpu":
            return torch.device("cpu")
        if self.trainer is not None:
            root = self.trainer.strategy.root_device
            return root if self.device == "auto" or root.type == "cuda" else torch.device("cuda")
        return torch.device("cpu" if self.device == "auto" else self.device)


def _ignore_stop_signals(worker_id: int) -> None:
    # Ctrl-C and schedulers signal the whole process group, but workers must keep drawing until
    # training has finished its accumulation window. They end with the loader or their parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

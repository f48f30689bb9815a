"""The training step of Lightning's own loop, as a call; and whole runs of it."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.training.noise import without_noise
from tabicl_linear.training.task import InContextTask
from tabicl_linear.types import Tensor

PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
"""What the Trainer calls them."""

Step = Callable[[TaskBatch], Tensor]
"""Trains on a batch and returns the loss."""

Result = TypeVar("Result")


class _Within(Callback):
    """Gives the loop's own step to some work once all is set up, then stops."""

    def __init__(self, work: Callable[[Step], Any]) -> None:
        self.work = work
        self.result: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do the work."""
        self.result = self.work(partial(_step, trainer))
        trainer.should_stop = True


def _step(trainer: Trainer, batch: TaskBatch) -> Tensor:
    # What the loop does with a batch that has arrived on the device: autocast, loss, backward
    # pass, clipping, optimiser, schedule.
    loop = trainer.fit_loop.epoch_loop
    arguments = OrderedDict(batch=batch, batch_idx=0)
    loss: Tensor = loop.automatic_optimization.run(trainer.optimizers[0], 0, arguments)["loss"]
    loop.update_lr_schedulers("step", update_plateau_schedulers=False)
    return loss


def within_training(
    task: InContextTask,
    work: Callable[[Step], Result],
    *,
    device: torch.device,
    precision: str = "float32",
    clipping: float | None = 1.0,
) -> Result:
    """Start training, and return what some work with the step of the loop comes to.

    `clipping` is the largest norm of the gradient.
    """
    within = _Within(work)
    options = {"max_steps": 400_000, "gradient_clip_val": clipping}
    nothing: DataLoader[int] = DataLoader([0], batch_size=None)  # type: ignore[arg-type]
    with without_noise():
        make_trainer(device, precision, within, **options).fit(task, nothing, nothing)
    result: Result = within.result
    return result


def make_trainer(
    device: torch.device, precision: str, callback: Callback, **options: Any
) -> Trainer:
    """A Trainer on one device that writes nothing and steps after every batch."""
    # It would say what devices it finds.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    return Trainer(
        accelerator=device.type,
        devices=1 if device.type == "cpu" else [device.index or 0],
        precision=PRECISIONS[precision],  # type: ignore[arg-type]
        callbacks=[callback],
        max_epochs=-1,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **options,
    )


def noise(tasks: int, rows: int, features: int, classes: int, device: torch.device) -> TaskBatch:
    """Tasks of noise, half of the rows context."""
    generator = torch.Generator().manual_seed(rows)
    return TaskBatch(
        x=torch.randn(tasks, rows, features, generator=generator),
        y=torch.randint(classes, (tasks, rows), generator=generator),
        categorical=torch.zeros(tasks, features, dtype=torch.bool),
        num_context=rows // 2,
        index=0,
    ).to(device)


def clipping(configs: Sequence[Path], overrides: Sequence[str]) -> float | None:
    """The largest norm of the gradient that a config trains with."""
    from tabicl_linear.config import ConfigCLI

    arguments = [*(f"--config={path}" for path in configs), *(f"--{o}" for o in overrides)]
    with torch.random.fork_rng(devices=[]), without_noise():
        value: float | None = ConfigCLI(arguments).config["trainer"]["gradient_clip_val"]
    return value

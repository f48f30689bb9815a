"""A moving average of the weights, which is scored and exported in their place."""

from collections.abc import Iterable
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Tensor


class WeightAverage(EMAWeightAveraging):
    """Keeps an exponential moving average of the weights in addition to the trained weights.

    Training is the same with and without it. Validations score the average. A checkpoint holds the
    average as `state_dict`, which `validate`, `export` and `load_model` read, and separately the
    trained weights, from which a run resumes. Until the first update there is no average, and the
    trained weights are used in its place.

    It differs from Lightning's callback in five points: the average has the precision of the run,
    but at least float32; it is on the device of the weights; buffers are copied, not averaged; a
    validation rounds neither weights nor average; and after training the module keeps the trained
    weights, so that a checkpoint written then can be resumed.

    Args:
        decay: Share of the previous average that an update keeps, from 0 to below 1. The average
            covers about the last 1 / (1 - decay) updates.
        update_every_n_steps: Optimiser steps between updates.
        update_starting_at_step: Optimiser steps before the first update, which copies the weights;
            0 starts at once.
    """

    def __init__(
        self,
        decay: float = 0.999,
        update_every_n_steps: int = 1,
        update_starting_at_step: int = 0,
    ) -> None:
        if not 0 <= decay < 1 or update_every_n_steps < 1 or update_starting_at_step < 0:
            raise ConfigError(
                f"decay={decay}, update_every_n_steps={update_every_n_steps}, "
                f"update_starting_at_step={update_starting_at_step}: use a decay from 0 to below "
                "1, at least 1 step between updates, and a start of 0 or more."
            )
        super().__init__(
            decay=decay,
            update_every_n_steps=update_every_n_steps,
            update_starting_at_step=update_starting_at_step,
        )
        self.decay = decay
        self._trained: list[Tensor] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Copy the networks in the run's precision (Lightning: the module, before conversion)."""
        if stage != "fit":
            return
        trainer.precision_plugin.convert_module(pl_module)
        # The module itself holds parts of a config parser, which cannot be copied.
        networks = nn.ModuleDict(dict(pl_module.named_children()))
        self._average_model = AveragedModel(networks, avg_fn=get_ema_avg_fn(self.decay))
        if next(pl_module.parameters()).dtype in (torch.bfloat16, torch.float16):
            self._average.float()  # updates with a weight of 0.001 would be lost in 16 bits

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move the average to the weights' device (Lightning: it stays where it was built)."""
        self._average.to(pl_module.device)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the next step the first that may update (Lightning: update at once)."""
        self._latest_update_step = max(self._latest_update_step, trainer.global_step)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace the trained weights by the average, keeping a copy of them."""
        if self._has_average:
            self._trained = [own.detach().clone() for own in pl_module.parameters()]
            _fill(pl_module, self._average.module.parameters())

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the trained weights."""
        if self._trained:
            _fill(pl_module, self._trained)
            self._trained = []

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do nothing (Lightning: put the average into the module, and so into checkpoints)."""

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Store the average, if any, as `state_dict`, and the trained weights beside it."""
        if self._has_average:
            super().on_save_checkpoint(trainer, pl_module, checkpoint)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Load average and weights; if the checkpoint has no average, a new one is started."""
        if "averaging_state" in checkpoint and self._average_model is not None:
            super().on_load_checkpoint(trainer, pl_module, checkpoint)

    @property
    def _average(self) -> AveragedModel:
        assert self._average_model is not None, "made when training begins"
        return self._average_model

    @property
    def _has_average(self) -> bool:
        """Whether there was an update, in this run or before the checkpoint that it resumes."""
        return self._average_model is not None and int(self._average_model.n_averaged) > 0


def _fill(module: nn.Module, values: Iterable[Tensor]) -> None:
    for own, value in zip(module.parameters(), values, strict=True):
        own.data.copy_(value)

"""Averages of the latest weights, which are what is scored and exported."""

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
    """Keeps an exponential moving average of the weights beside those that are trained.

    Training is the same with and without it. Validations score the average, and a checkpoint holds
    it as `state_dict`, which is what `validate`, `export` and `load_model` read, and the trained
    weights beside it, from which a run goes on. Until the first update there is no average, and
    the trained weights stand for it.

    Lightning's callback, but for this: the average is in the precision of the run and at least
    float32; it is on the device of the weights; buffers are copied, not averaged; a validation
    rounds neither weights nor average; and after training the module keeps the trained weights,
    so that a checkpoint that is written then can be resumed.

    Args:
        decay: Share of the former average that an update keeps, 0 to below 1. The average reaches
            back over about 1 / (1 - decay) updates.
        update_every_n_steps: Optimiser steps between updates.
        update_starting_at_step: Steps before the first update; 0 to begin at once. The first takes
            the weights as they are.
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
        """Copy the networks in the precision of the run (Lightning: the module, before that)."""
        if stage != "fit":
            return
        trainer.precision_plugin.convert_module(pl_module)
        # The module itself holds the parts of a config parser, of which there is no copy.
        networks = nn.ModuleDict(dict(pl_module.named_children()))
        self._average_model = AveragedModel(networks, avg_fn=get_ema_avg_fn(self.decay))
        if next(pl_module.parameters()).dtype in (torch.bfloat16, torch.float16):
            self._average.float()  # steps of a thousandth are lost in 16 bits

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Follow the weights to their device (Lightning: stay where they were built)."""
        self._average.to(pl_module.device)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Wait for the next step (Lightning: average what an average starts from at once)."""
        self._latest_update_step = max(self._latest_update_step, trainer.global_step)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the average in the place of the trained weights, of which a copy is kept."""
        if self._has_average:
            self._trained = [own.detach().clone() for own in pl_module.parameters()]
            _fill(pl_module, self._average.module.parameters())

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the trained weights back."""
        if self._trained:
            _fill(pl_module, self._trained)
            self._trained = []

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Nothing (Lightning: leave the average in the module, where later checkpoints save it)."""

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put the average into `state_dict`, where there is one, and the trained weights aside."""
        if self._has_average:
            super().on_save_checkpoint(trainer, pl_module, checkpoint)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take up both; a checkpoint without an average starts one."""
        if "averaging_state" in checkpoint and self._average_model is not None:
            super().on_load_checkpoint(trainer, pl_module, checkpoint)

    @property
    def _average(self) -> AveragedModel:
        assert self._average_model is not None, "made when training begins"
        return self._average_model

    @property
    def _has_average(self) -> bool:
        """Whether there was an update, here or before the checkpoint that the run goes on from."""
        return self._average_model is not None and int(self._average_model.n_averaged) > 0


def _fill(module: nn.Module, values: Iterable[Tensor]) -> None:
    for own, value in zip(module.parameters(), values, strict=True):
        own.data.copy_(value)

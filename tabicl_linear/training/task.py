"""The training task: one model, its loss, its optimiser and what it is scored on."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch.optim import Optimizer

from tabicl_linear.architecture import Architecture
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.backend import Backend, resolve
from tabicl_linear.mixers.base import MixerFactory
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import ReadoutFactory
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.training.schedule import WarmupCosine
from tabicl_linear.training.scores import MeanScores, cross_entropy, score
from tabicl_linear.types import Float, Tensor


class NonFiniteTraining(RuntimeError):
    """Training met a loss or gradient that is not finite; the message says how to see it again."""


class InContextTask(LightningModule):
    """Trains an `InContextModel` in its strategy's layout and scores it in the single-target one.

    Args:
        mixer: Makes one sequence mixer per layer from (width, heads).
        readout: Makes one readout per layer from the number of heads.
        strategy: Layout of the rows while training.
        architecture: Sizes of the network.
        optimizer: Makes the optimiser from the parameters, all in one group.
        schedule: Makes the learning-rate schedule from the optimiser; stepped once per optimiser
            step. `WarmupCosine` is stretched over `trainer.max_steps`.
        backend: Which kernels compute the mixers.
    """

    def __init__(
        self,
        mixer: MixerFactory,
        readout: ReadoutFactory,
        strategy: Strategy,
        architecture: Architecture,
        optimizer: OptimizerCallable,
        schedule: LRSchedulerCallable,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False)
        _check(optimizer, schedule)
        self.model = InContextModel.from_parts(
            mixer, readout, strategy=strategy, architecture=architecture
        )
        self.optimizer = optimizer
        self.schedule = schedule
        self.backend = resolve(backend)
        self.val_scores = MeanScores()
        self.test_scores = MeanScores()
        self._window: list[int] = []

    def training_step(self, batch: TaskBatch, batch_idx: int) -> Float[Tensor, ""]:
        """Cross-entropy of the query rows: mean over each task's rows, then over tasks.

        Raises:
            NonFiniteTraining: Before the optimiser sees a loss that is not finite.
        """
        loss = cross_entropy(self.model(batch), batch.y[:, batch.num_context :]).mean()
        self._window.append(batch.index)
        if not loss.isfinite():
            self._stop(f"The loss is {loss.item()}", [batch.index])
        self.log("train/loss", loss.detach(), prog_bar=True, batch_size=len(batch.y))
        return loss

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Log learning rate and gradient norm (before clipping); stop if that is not finite."""
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        # The loss scaler of float16 provokes infinite gradients on purpose and skips those steps.
        if self.trainer.precision != "16-mixed" and not norm.isfinite():
            self._stop(f"The gradient norm is {norm.item()}", self._window)
        rate = optimizer.param_groups[0]["lr"]
        self.log_dict({"train/gradient_norm": norm, f"lr-{type(optimizer).__name__}": rate})
        self._window.clear()

    def validation_step(self, batch: TaskBatch, batch_idx: int) -> None:
        """Score a batch of the validation set."""
        self._evaluate(batch, self.val_scores, "val")

    def test_step(self, batch: TaskBatch, batch_idx: int) -> None:
        """Score a batch of the test set."""
        self._evaluate(batch, self.test_scores, "test")

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """The optimiser and its schedule over `trainer.max_steps` optimiser steps."""
        optimizer = self.optimizer(self.parameters())
        schedule = self.schedule(optimizer)
        if isinstance(schedule, WarmupCosine):
            schedule.plan(self.trainer.max_steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Let this run's optimiser options (weight decay, betas ...) replace the stored ones.

        The learning rate is the schedule's business.
        """
        for stored in checkpoint.get("optimizer_states", []):
            fresh = self.optimizer(self.parameters()).param_groups
            for old, new in zip(stored["param_groups"], fresh, strict=True):
                old.update({k: v for k, v in new.items() if k not in ("params", "lr")})

    def _evaluate(self, batch: TaskBatch, scores: MeanScores, prefix: str) -> None:
        context, queries = batch.x.tensor_split([batch.num_context], dim=1)
        state = self.model.fit(
            context, batch.y[:, : batch.num_context], categorical=batch.categorical
        )
        logits = self.model.predict(state, queries)
        scores.update(score(logits, batch.y[:, batch.num_context :]))
        self.log_dict(scores.named(prefix), on_step=False, on_epoch=True)

    def _stop(self, what: str, indices: list[int]) -> None:
        """Raise, naming the step, the batches and the line that draws them again."""
        rank = self.trainer.global_rank
        config = f"{self.trainer.default_root_dir}/config.yaml"
        raise NonFiniteTraining(
            f"{what} at optimiser step {self.trainer.global_step}, batch "
            f"{', '.join(map(str, indices))}, rank {rank}: the step was not taken. To draw the "
            f"batch again: from tabicl_linear.cli import build_data; build_data({config!r}, "
            f"overrides=['data.device={self.device.type}', 'data.num_workers=0'])"
            f".stream('train', rank={rank}).batch({indices[0]}). Lower the learning rate, or "
            "resume from the run's last.ckpt with another seed."
        )


def _check(optimizer: OptimizerCallable, schedule: LRSchedulerCallable) -> None:
    """Try both on a parameter of no use, so that bad arguments show before training starts."""
    try:
        schedule(optimizer([torch.nn.Parameter(torch.zeros(1))]))
    except ValueError as error:
        raise ConfigError(f"model.optimizer or model.schedule: {error}") from error

"""The training task: a model with its loss, optimiser and scores."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch.optim import Optimizer

from tabicl_linear.architecture import Architecture
from tabicl_linear.backends.choice import Backend, check
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import CheckpointError
from tabicl_linear.mixers.base import MixerFactory
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import ReadoutFactory
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.training.after_step import AfterStep, make_up
from tabicl_linear.training.metric_names import GRADIENT_NORM, LEARNING_RATE, LOSS
from tabicl_linear.training.mixer_checks import check_mixer
from tabicl_linear.training.optimizer_checks import check_eps, check_makes, take_options
from tabicl_linear.training.part_checks import check_independence, check_readout, check_strategy
from tabicl_linear.training.schedule import PlannedSchedule
from tabicl_linear.training.scores import MeanScores, cross_entropy, score
from tabicl_linear.training.state_passing import PassedStates, StatePassing
from tabicl_linear.types import Float, Tensor

AUTOCAST = {"bf16-mixed": (torch.bfloat16,), "16-mixed": (torch.float16,)}
"""The reduced dtype of each mixed precision of the Trainer."""


class NonFiniteTraining(RuntimeError):
    """A loss or gradient is not finite; the message says how to reproduce the batch."""


class InContextTask(LightningModule):
    """Trains an `InContextModel` in its strategy's layout and scores it in the single-target one.

    Args:
        mixer: Makes one sequence mixer per layer from (width, heads).
        readout: Makes one readout per layer from the number of heads.
        strategy: Layout of the rows in training.
        architecture: Sizes of the network.
        optimizer: Makes the optimiser from the named parameters; PyTorch's optimisers put all of
            them into one group.
        schedule: Makes the learning-rate schedule from the optimiser; stepped once per optimiser
            step. A `PlannedSchedule` is stretched over `trainer.max_steps`.
        state_passing: Start each training batch from the states of the one before; from zero if
            left out.
        backend: Kernels of the mixers: plain PyTorch (torch), the C++ kernels on a CPU (cpp),
            flash-linear-attention on CUDA (fla), or the fastest that runs (auto).
        compile_dense: Run everything between the mixers' rules through torch.compile.

    Raises:
        ConfigError: The parts do not fit together, or mixer, readout or strategy break a promise
            that a few tokens show.
    """

    def __init__(
        self,
        mixer: MixerFactory,
        readout: ReadoutFactory,
        strategy: Strategy,
        architecture: Architecture,
        optimizer: OptimizerCallable,
        schedule: LRSchedulerCallable,
        state_passing: StatePassing | None = None,
        backend: Backend = "auto",
        compile_dense: bool = False,
    ) -> None:
        super().__init__()
        with warnings.catch_warnings():
            # From a config these are plain data, but Python callers pass a strategy as a module.
            warnings.filterwarnings("ignore", "Attribute 'strategy' is an instance", UserWarning)
            self.save_hyperparameters(logger=False)
        check(backend)
        has_values = torch.get_default_device().type != "meta"  # where only sizes are asked for
        if has_values:
            with torch.random.fork_rng(devices=[]):  # the model draws the same weights without
                check_mixer(mixer(architecture.dim, architecture.num_heads), architecture.dim)
        self.model = InContextModel.from_parts(
            mixer, readout, strategy=strategy, architecture=architecture, backend=backend
        )
        if has_values:
            block = self.model.backbone.layers()[0]
            check_independence(block.mixer, architecture.dim)
            check_readout(block.readout, block.mixer, architecture.dim)
            check_strategy(strategy, architecture.dim)
        if state_passing is not None:
            state_passing.check(self.model)
        check_makes(optimizer, schedule, self.model)
        self.optimizer = optimizer
        self.schedule = schedule
        self.state_passing = state_passing
        self.backend = backend
        self.compile_dense = compile_dense
        self.val_scores = MeanScores()
        self.test_scores = MeanScores()
        self._window: list[int] = []  # batches of the accumulation window, by index
        self._passed = PassedStates(state_passing)
        self._left = AfterStep()
        self._folder = ""

    def setup(self, stage: str) -> None:
        """Convert to the Trainer's precision and choose kernels for it, before the model moves.

        Passed states of an earlier run are discarded; a checkpoint's are loaded later.
        """
        self._passed.restore({})
        self._left = AfterStep()
        # Processes other than the first do not know the run folder until they are connected.
        self._folder = self.trainer.strategy.broadcast(str(self.trainer.default_root_dir))
        # Lightning converts only after restoring a checkpoint, which would round float64 weights.
        self.trainer.precision_plugin.convert_module(self)
        autocast = AUTOCAST.get(str(self.trainer.precision), ())
        self.model.place(self.backend, autocast=autocast, compile_dense=self.compile_dense)

    def on_train_start(self) -> None:
        """Continue from the states of a checkpoint, if any, and make up a missed validation.

        Raises:
            ConfigError: State passing with data whose seed is not known, or states of another
                number of processes.
        """
        self._passed.start(self.trainer, self.device)
        self._left = make_up(self.trainer, self._left)

    def on_fit_end(self) -> None:
        """Make up a missed validation if the run had no further step to take."""
        self._left = make_up(self.trainer, self._left)

    def training_step(self, batch: TaskBatch, batch_idx: int) -> Float[Tensor, ""]:
        """Cross-entropy of the query rows: mean over each task's rows, then over tasks.

        Raises:
            NonFiniteTraining: The loss is not finite; the optimiser step is not taken.
        """
        initial = self._passed.initial(batch, self.global_rank)
        logits, layers = self.model.train_pass(batch, initial)
        self._passed.keep(layers)
        loss = cross_entropy(logits, batch.y[:, batch.num_context :]).mean()
        self._window.append(batch.index)
        if not loss.isfinite():
            self._stop(f"The loss is {loss.item()}", [batch.index])
        self.log(LOSS, loss.detach(), prog_bar=True, batch_size=len(batch.y))
        return loss

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Log learning rate and gradient norm (before clipping); stop if the norm is not finite."""
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        # The loss scaler of float16 causes infinite gradients on purpose and skips those steps.
        if self.trainer.precision != "16-mixed" and not norm.isfinite():
            self._stop(f"The gradient norm is {norm.item()}", self._window)
        rate = optimizer.param_groups[0]["lr"]
        self.log_dict({GRADIENT_NORM: norm, LEARNING_RATE: rate})
        self._window.clear()
        self._passed.step()

    def validation_step(self, batch: TaskBatch, batch_idx: int) -> None:
        """Score a batch of the validation set."""
        self._evaluate(batch, self.val_scores, "val")

    def test_step(self, batch: TaskBatch, batch_idx: int) -> None:
        """Score a batch of the test set."""
        self._evaluate(batch, self.test_scores, "test")

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """The optimiser and its schedule over `trainer.max_steps` optimiser steps.

        Raises:
            ConfigError: The optimiser's eps is zero in the precision of the weights.
        """
        optimizer = self.optimizer(self.named_parameters())
        check_eps(optimizer)
        schedule = self.schedule(optimizer)
        if isinstance(schedule, PlannedSchedule):
            schedule.plan(self.trainer.max_steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the states from which each process starts the batch after the last step."""
        checkpoint.update(self._passed.stored(self.trainer.world_size))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the checkpoint's passed states, and keep this run's own optimiser options.

        This run's options (weight decay, betas ...) replace the stored ones; the schedule sets the
        learning rate.

        Raises:
            CheckpointError: The weights are those of another network.
            ConfigError: The optimiser's groups hold other parameters, or one of its options needs
                a state that is not stored.
        """
        _check_weights(checkpoint["state_dict"], self.state_dict())
        self._passed.restore(checkpoint)
        self._left = AfterStep.read(checkpoint)
        for stored in checkpoint.get("optimizer_states", []):
            take_options(stored, self.optimizer(self.named_parameters()))

    def _evaluate(self, batch: TaskBatch, scores: MeanScores, prefix: str) -> None:
        context, queries = batch.x.tensor_split([batch.num_context], dim=1)
        state = self.model.fit(
            context, batch.y[:, : batch.num_context], categorical=batch.categorical
        )
        logits = self.model.predict(state, queries)
        scores.update(score(logits, batch.y[:, batch.num_context :]))
        self.log_dict(scores.named(prefix), on_step=False, on_epoch=True)

    def _stop(self, what: str, indices: list[int]) -> None:
        """Raise an error that names the step, the batches and the code that draws them again."""
        rank = self.trainer.global_rank
        config = f"{self._folder}/config.yaml"
        raise NonFiniteTraining(
            f"{what} at optimiser step {self.trainer.global_step}, batch "
            f"{', '.join(map(str, indices))}, rank {rank}: the step was not taken. To draw the "
            f"batch again: from tabicl_linear.config import build_data; build_data({config!r}, "
            f"overrides=['data.device={self.device.type}', 'data.num_workers=0'])"
            f".stream('train', rank={rank}).batch({indices[0]}). Lower the learning rate, or "
            "resume from the run's last.ckpt with another seed."
        )


def differing_weights(stored: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str | None:
    """Describe how the names or shapes of two networks' weights differ; None if they do not."""
    other_shape = {n for n in stored.keys() & own.keys() if stored[n].shape != own[n].shape}
    names = sorted((stored.keys() ^ own.keys()) | other_shape)
    if not names:
        return None
    return f"{names[0]} and {len(names) - 1} more are missing, unknown or of another shape"


def _check_weights(stored: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` for weights of another network, before any of them is copied."""
    if differing := differing_weights(stored, own):
        raise CheckpointError(
            "The checkpoint's weights are not those of the network that it describes: "
            f"{differing}; give a last.ckpt that `tabicl-linear fit` wrote."
        )

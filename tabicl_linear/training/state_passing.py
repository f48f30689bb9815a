"""State passing: a training batch starts from the final states of the batch before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Trainer

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.data.datamodule import PriorDataModule
from tabicl_linear.data.stream import Stage
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.model import InContextModel
from tabicl_linear.types import Float, Tensor

States = tuple[Float[Tensor, "b h v k"], ...]
"""One state S per layer, first to last; empty before the first batch."""

KEY = "state_passing"
"""Key of the passed states in a checkpoint."""
_RESETS = 1
"""Last word of the seed's key: tells resets from other draws of a batch besides its content."""


@dataclass(frozen=True)
class StatePassing:
    """S_0 of a training batch is the detached S_n of the batch before it (section 4.2).

    Sample i starts from the state of sample i mod b, where b is the size of the batch before. Only
    the state is passed: clock and short convolution start from zero. The first batch, and all
    validation, test and prediction, start from zero states. S_n is the state after everything that
    the strategy writes, which in multi-target training includes the query rows.

    Attributes:
        reset_probability: Probability that a sample starts from zero in all layers; 0.1 in the
            authors' code.
    """

    reset_probability: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.reset_probability <= 1:
            raise ConfigError(
                f"state_passing.reset_probability={self.reset_probability}: give a probability, "
                "from 0 to 1."
            )

    def check(self, model: InContextModel) -> None:
        """Refuse networks whose states cannot be passed.

        Raises:
            ConfigError: The mixer has no matrix state, the architecture sets the initial states
                itself, or it has cells, whose number differs between batches.
        """
        rule = model.backbone.layers()[0].mixer.rule
        if not rule.has_matrix_state:
            raise ConfigError(
                f"state_passing starts a batch from the matrix states of the batch before, and "
                f"{type(rule).__name__} has none; use a recurrent mixer such as "
                "tabicl_linear.mixers.gla.GatedLinearAttention, or leave state_passing out."
            )
        start = model.architecture.initial_states
        if start != "zero":
            raise ConfigError(
                f"state_passing and architecture.initial_states={start} both set the state that a "
                "layer starts from: choose one, set initial_states to zero or leave state_passing "
                "out."
            )
        if model.architecture.cells is not None:
            raise ConfigError(
                "state_passing with architecture.cells: each group of columns has its own states, "
                "and batches differ in their columns, so states of one batch do not fit the next; "
                "set cells to null or leave state_passing out."
            )

    def initial(
        self, states: States, batch_size: int, seed: np.random.SeedSequence
    ) -> tuple[LayerState, ...] | None:
        """The states to start a batch from; None (zero) if there was no batch before.

        Args:
            states: States of the batch before.
            batch_size: Tasks of the batch to start.
            seed: Determines which samples start from zero.
        """
        if not states:
            return None
        device = states[0].device
        draws = np.random.default_rng(seed).random(batch_size)
        reset = torch.from_numpy(draws < self.reset_probability).to(device)
        source = torch.arange(batch_size, device=device) % len(states[0])
        return tuple(
            LayerState(MatrixState(S[source].masked_fill(reset[:, None, None, None], 0)), None, 0)
            for S in states
        )


class PassedStates:
    """Carries the states of a run from one batch to the next.

    Args:
        options: How states are passed; None if every batch starts from zero.
    """

    def __init__(self, options: StatePassing | None) -> None:
        self._options = options
        self._last: States = ()  # after the last batch
        self._stepped: States = ()  # after the last optimiser step, to be saved in a checkpoint
        self._restored: States = ()  # of all processes, from a checkpoint, until training starts
        self._seed = 0

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Take the states of a checkpoint, for `start`; one without states clears earlier ones."""
        self._restored = checkpoint.get(KEY, {}).get("memories", ())

    def start(self, trainer: Trainer, device: torch.device) -> None:
        """Begin with the restored states of a checkpoint, or without any.

        Raises:
            ConfigError: The seed of the data is not known, or the states are those of another
                number of processes.
        """
        self._last = self._stepped = ()
        restored, self._restored = self._restored, ()
        if self._options is None:
            return
        datamodule = trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(datamodule, PriorDataModule):
            raise ConfigError(
                "state_passing chooses the samples that start from zero by the seed of the "
                "training stream: train from a PriorDataModule (it takes any Prior of yours), or "
                "leave state_passing out."
            )
        if restored and len(restored[0]) != trainer.world_size:
            raise ConfigError(
                f"The checkpoint holds passed states of {len(restored[0])} processes and this run "
                f"has {trainer.world_size}; resume with as many, or with --model.state_passing "
                "null."
            )
        self._seed = datamodule.seed
        self._last = self._stepped = tuple(S[trainer.global_rank].to(device) for S in restored)

    def initial(self, batch: TaskBatch, rank: int) -> tuple[LayerState, ...] | None:
        """The states that a training batch starts from; None for zero."""
        if self._options is None:
            return None
        seed = reset_seed(self._seed, batch.index, rank)
        return self._options.initial(self._last, len(batch.y), seed)

    def keep(self, layers: Sequence[LayerState]) -> None:
        """Take the final states of a batch, for the next one."""
        if self._options is not None:
            self._last = final_states(layers)

    def step(self) -> None:
        """Mark the last batch's states as those after an optimiser step."""
        self._stepped = self._last

    def stored(self, num_ranks: int) -> dict[str, Any]:
        """The entry of a checkpoint: the states from which each process starts its next batch."""
        return {KEY: {"memories": gather(self._stepped, num_ranks)}} if self._stepped else {}


def final_states(layers: Sequence[LayerState]) -> States:
    """The states of fitted layers, detached from the autograd graph."""
    return tuple(matrix_of(layer.rule_state).detach() for layer in layers)


def gather(states: States, num_ranks: int) -> tuple[Float[Tensor, "r b h v k"], ...]:
    """The states of all processes, stacked in order of rank; every process must call this.

    Batches, and so their states, have the same shape on every rank.
    """
    if num_ranks == 1:
        return tuple(S.unsqueeze(0) for S in states)
    gathered = []
    for S in states:
        everyone = [S.new_empty(S.shape) for _ in range(num_ranks)]
        torch.distributed.all_gather(everyone, S.contiguous())
        gathered.append(torch.stack(everyone))
    return tuple(gathered)


def reset_seed(seed: int, index: int, rank: int) -> np.random.SeedSequence:
    """Seed of the resets of training batch `index`.

    Args:
        seed: Seed of the training stream.
        index: Position of the batch in the stream.
        rank: Process that trains on the batch.
    """
    # The keys of the stream's content are one word shorter, so no two seeds coincide.
    return np.random.SeedSequence(seed, spawn_key=(int(Stage.TRAIN), index, rank, _RESETS))

"""State passing: a training batch starts from the final states of the batch before it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tabicl_linear.data.stream import Stage
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.model import InContextModel
from tabicl_linear.types import Float, Tensor

States = tuple[Float[Tensor, "b h v k"], ...]
"""One state S per layer, first to last; empty before the first batch."""

_RESETS = 1
"""Marks the resets among the draws of a batch that are not its content."""


@dataclass(frozen=True)
class StatePassing:
    """S_0 of a training batch is the detached S_n of the batch before it (section 4.2).

    Sample i takes the state of sample i modulo the size of the batch before. Only the state is
    passed: clock and short convolution start from zero. The first batch, and all validation, test
    and prediction, start from zero states. S_n is the state after everything that the strategy
    writes, which in multi-target training includes the query rows.

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
        """Refuse networks that have no states to pass.

        Raises:
            ConfigError: No matrix state, woven or learned states, or cells of a row in the batch.
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
        """States to start a batch from; None, for zero, if there was no batch before.

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


def final_states(layers: Sequence[LayerState]) -> States:
    """The states of fitted layers, cut from the graph that computed them."""
    return tuple(matrix_of(layer.rule_state).detach() for layer in layers)


def gather(states: States, num_ranks: int) -> tuple[Float[Tensor, "r b h v k"], ...]:
    """The states of all processes, in order of rank; every process must call this.

    The shape of a batch is the same on every rank, and so are those of its states.
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
    # The stream's own keys are one word shorter, so the two never coincide.
    return np.random.SeedSequence(seed, spawn_key=(int(Stage.TRAIN), index, rank, _RESETS))

"""What the ensemble expects of a learner, and learners to whose states rows can be added."""

from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import ChosenTrees
from tabicl_linear.estimator.learners.chosen_trees.divisions import rows_that_grow
from tabicl_linear.model import InContextModel
from tabicl_linear.types import Bool, Float, Int, Tensor

State = TypeVar("State")


class ContextLearner(Protocol[State]):
    """Reads labelled rows into a state, a tree of tensors, and predicts other rows from it."""

    @property
    def device(self) -> torch.device:
        """The device it computes on."""

    @property
    def max_columns(self) -> int:
        """Maximum number of columns it takes."""

    def to(self, device: torch.device, /) -> Self:
        """Move the learner to a device and return it."""

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"],
        rows_per_chunk: int,
        spill: Path | None = None,
    ) -> State:
        """The state after labelled rows; see `InContextModel.fit`.

        Args:
            x: Features; NaN and infinities count as missing.
            y: Class indices from 0.
            categorical: Which columns hold category codes.
            rows_per_chunk: Rows processed together. The result is the same up to rounding.
            spill: Folder for what grows with the rows; None for memory.
        """

    def predict(self, state: State, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""


class Learners(Protocol):
    """Makes the learner of a table."""

    @property
    def is_causal(self) -> bool:
        """Whether rows can be added to all states."""

    @property
    def takes_pieces(self) -> bool:
        """Whether rows can be added to states of learners that grow."""

    @property
    def compares_columns(self) -> bool:
        """Whether it gains by columns that compare others (`columns/pairs.py`)."""

    def for_table(
        self, num_classes: int, num_rows: int, *, grows: bool = False
    ) -> ContextLearner[Any]:
        """The learner for so many classes and rows, to which others are added if it grows."""


class ComposedLearner(Generic[State]):
    """Base of learners that use another one several times, as for blocks or digits."""

    def __init__(self, learner: ContextLearner[State]) -> None:
        self.learner = learner

    @property
    def device(self) -> torch.device:
        """The device it computes on."""
        return self.learner.device

    @property
    def max_columns(self) -> int:
        """Maximum number of columns it takes."""
        return self.learner.max_columns

    def to(self, device: torch.device, /) -> Self:
        """Move the learner to a device."""
        self.learner = self.learner.to(device)
        return self


def grows(learner: ContextLearner[Any]) -> bool:
    """Whether rows can be added to the states of a learner."""
    if isinstance(learner, ChosenTrees):
        return learner.grows
    return isinstance(learner, InContextModel) and learner.is_causal


def rows_held(learner: ContextLearner[Any]) -> int:
    """How many first rows are held to learn the columns from; 0 where the first piece is enough."""
    return rows_that_grow() if isinstance(learner, ChosenTrees) else 0


def extensible(learner: ContextLearner[Any]) -> InContextModel | ChosenTrees:
    """The learner as one to whose states rows can be added.

    Raises:
        UnsupportedReadout: It is none; the message says why.
    """
    if isinstance(learner, ChosenTrees):
        if learner.grows:
            return learner
        raise UnsupportedReadout(
            "Trees that `fit` has chosen keep their coefficients alone: begin with `partial_fit` "
            "on a new classifier to add rows later."
        )
    if not isinstance(learner, InContextModel):
        raise UnsupportedReadout(
            f"A {type(learner).__name__} cannot be extended by more rows: fit all rows at once, or "
            "use a model whose layers read causally (tabicl_linear.readouts.Causal) and that takes "
            "all classes, with long_context='full'."
        )
    learner.check_extensible()
    return learner

"""The protocol of learners, and the shared parts of learners that query another learner."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, Self, TypeAlias

import torch

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.estimator.arrays import IntArray
from tabicl_linear.types import Bool, Float, Int, Tensor

State: TypeAlias = Any
"""What a learner has read: a tree of tensors, whose structure only this learner knows."""


class ContextLearner(Protocol):
    """Reads labelled rows into a state, a tree of tensors, and predicts other rows from it."""

    @property
    def device(self) -> torch.device:
        """The device it computes on."""

    @property
    def max_columns(self) -> int:
        """Maximum number of columns it takes."""

    @property
    def is_causal(self) -> bool:
        """Whether rows can be added to its states."""

    def check_extensible(self) -> None:
        """Raise `UnsupportedReadout`, with the reason, if no rows can be added to its states."""

    def to(self, device: torch.device, /) -> Self:
        """Move the learner to a device and return it."""

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
        rows_per_chunk: int,
        spill: Path | None = None,
        state: State | None = None,
    ) -> State:
        """The state after labelled rows; see `InContextModel.fit` for the arguments.

        With a `state` to extend, `categorical` is left out: the state knows these columns.

        Raises:
            UnsupportedReadout: No rows can be added to `state`.
        """

    def predict(self, state: State, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""


class Preset(NamedTuple):
    """Values that a classifier takes for its arguments of the same names if these are None."""

    n_estimators: int
    softmax_temperature: float


class OwnPreset(ABC):
    """A learner with its own preset, which replaces that of the classifier's `ensemble`."""

    @abstractmethod
    def preset(self, num_rows: int, num_columns: int) -> Preset:
        """The preset for a table of this size; some member should see each of its columns."""


class SolvedLater(ABC):
    """A learner that only adds rows to sums, and solves the sums when it has to predict.

    Rows can thus be added many times before one solution. `predict` takes solved and unsolved
    states.
    """

    @abstractmethod
    def solved(self, state: State) -> State:
        """The state, solved once for all predictions; a solved state is returned as it is."""


class Companion(NamedTuple):
    """A second learner of the same rows, and the weight (0 to 1) of its logits beside the first."""

    learner: ContextLearner
    weight: float


class Learners(ABC):
    """Makes the learner that suits a table, according to the arguments of a classifier."""

    grow_trees = False
    """Whether trees are chosen on the table. They profit from columns that compare others
    (`columns/pairs.py`). In a table in pieces the first rows grow them, and are held until then."""

    @property
    def is_causal(self) -> bool:
        """Whether rows can be added to states of its learners, even if made without `grows`."""
        return False

    @abstractmethod
    def for_table(self, num_classes: int, num_rows: int, *, grows: bool = False) -> ContextLearner:
        """The learner of a table; with `grows`, one to whose states rows will be added."""

    def finished(self, learner: Any, states: tuple[State, ...]) -> tuple[Any, tuple[State, ...]]:
        """The learner and states without what is only needed to add rows, as none will come."""
        return learner, states

    def companion(self, counts: IntArray) -> Companion | None:
        """A learner to fit beside that of `for_table`, if one helps; no rows will be added.

        `counts` are the rows of each class.
        """
        return None


def refuse_more_rows(learner: object) -> NoReturn:
    """Raise `UnsupportedReadout` for a learner to whose states no rows can be added."""
    raise UnsupportedReadout(
        f"A {type(learner).__name__} cannot be extended by more rows: fit all rows at once, or "
        "use a model whose layers read causally (tabicl_linear.readouts.Causal) and that takes all "
        "classes, with long_context='full'."
    )


class ComposedLearner:
    """Base of learners that query another learner several times: for each block or digit."""

    is_causal = False
    check_extensible = refuse_more_rows

    def __init__(self, learner: ContextLearner) -> None:
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

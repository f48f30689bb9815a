"""What the ensemble expects of a learner, and what learners that ask another one share."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, Self, TypeAlias

import torch

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.types import Bool, Float, Int, Tensor

State: TypeAlias = Any
"""What a learner has read: a tree of tensors, whose form it alone knows."""


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
        """The state after labelled rows; see `InContextModel.fit` for arguments.

        Columns are `categorical` as those of the state are, if there is one.

        Raises:
            UnsupportedReadout: Rows are to be added to a state that takes none.
        """

    def predict(self, state: State, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Logits of unlabelled rows, each independent of the others."""


class Preset(NamedTuple):
    """What a classifier takes for arguments of the same names that are None."""

    n_estimators: int
    softmax_temperature: float


class OwnPreset(ABC):
    """A learner with a preset of its own, which replaces that of the classifier's `ensemble`."""

    @abstractmethod
    def preset(self, num_rows: int, num_columns: int) -> Preset:
        """What suits a table of so many rows, and columns that some member should see."""


class SolvedLater(ABC):
    """A learner that only sums rows up when they are added, and solves the sums to predict.

    So rows can be added several times in a row for one solution. `predict` takes states of both
    kinds.
    """

    @abstractmethod
    def solved(self, state: State) -> State:
        """The state, solved once for all predictions from it; itself where it is already."""


class Companion(NamedTuple):
    """A second learner of the same rows, and the weight of its logits; the first has the rest."""

    learner: ContextLearner
    weight: float


class Learners(ABC):
    """Makes the learner that suits a table, as the arguments of a classifier say."""

    grow_trees = False
    """Whether trees are chosen on the table. They gain by columns that compare others
    (`columns/pairs.py`). In a table in pieces the first rows grow them, and are held until then."""

    @property
    def is_causal(self) -> bool:
        """Whether rows can be added to the states of any of its learners."""
        return False

    @abstractmethod
    def for_table(self, num_classes: int, num_rows: int, *, grows: bool = False) -> ContextLearner:
        """The learner of a table; with `grows` one to whose states rows will be added."""

    def finished(self, learner: Any, states: tuple[State, ...]) -> tuple[Any, tuple[State, ...]]:
        """The learner and its states once no more rows will come: without what only these need."""
        return learner, states

    def companion(self, num_classes: int, num_rows: int) -> Companion | None:
        """A learner to fit beside that of a table, if no rows will be added and one helps."""
        return None


def refuse_more_rows(learner: object) -> NoReturn:
    """Raise `UnsupportedReadout` for a learner to whose states no rows can be added."""
    raise UnsupportedReadout(
        f"A {type(learner).__name__} cannot be extended by more rows: fit all rows at once, or "
        "use a model whose layers read causally (tabicl_linear.readouts.Causal) and that takes all "
        "classes, with long_context='full'."
    )


class ComposedLearner:
    """Base of learners that use another one several times, as for blocks or digits."""

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

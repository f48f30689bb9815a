"""Fixed synthetic tasks on which models are analysed."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tabicl_linear.analysis.states import check_lengths
from tabicl_linear.errors import ConfigError
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.priors.base import Prior, TaskShape, drawn
from tabicl_linear.types import Bool, Float, Int, Tensor

SEED = 2718
"""Seed of the probe tasks, the same for all runs."""
NUM_FEATURES, NUM_CLASSES = 10, 5
"""Sizes of probe tasks, if the model takes them: those of the paper's length generalisation."""
NUM_QUERIES = 100
REFERENCE = 1000
"""Context rows of the state with which the paper compares others."""
FACTORS = (0.125, 0.25, 0.5, 1, 2, 4)
"""Context lengths of a probe, as multiples of the longest table of training."""
LONGEST = 16_000
"""Most context rows of a probe beyond the trained length, so that probes stay cheap."""


class Probe(NamedTuple):
    """Tasks whose last rows are queries; any number of the first rows can serve as context.

    Attributes:
        x: Features; may hold NaN.
        y: Classes; each occurs among the first rows, and also among the queries if it has two rows.
        categorical: Which columns hold category codes.
        num_queries: Number of query rows.
        trained: Rows of the longest table of training; None if unknown.
        states: Cache of `fit`: the states of one model by context length; None for no cache.
    """

    x: Float[Tensor, "b n m"]
    y: Int[Tensor, "b n"]
    categorical: Bool[Tensor, "b m"]
    num_queries: int
    trained: int | None
    states: dict[int, InContextState] | None = None

    @property
    def num_context(self) -> int:
        """Number of rows that can be context."""
        return self.x.shape[1] - self.num_queries

    @property
    def queries(self) -> tuple[Float[Tensor, "b q m"], Int[Tensor, "b q"]]:
        """The query rows, the same for every context length, and their classes."""
        return self.x[:, self.num_context :], self.y[:, self.num_context :]

    def context(self, length: int) -> tuple[Float[Tensor, "b c m"], Int[Tensor, "b c"]]:
        """The first `length` rows and their classes.

        Raises:
            DataError: The tasks have fewer context rows.
        """
        check_lengths([length], self.num_context)
        return self.x[:, :length], self.y[:, :length]

    def fit(self, model: InContextModel, length: int, *, anew: bool = False) -> InContextState:
        """The states of a model fitted on the first `length` rows, from the cache if possible.

        Args:
            model: The model; always the same one while there is a cache.
            length: Rows of context.
            anew: Compute even cached states again, for a caller that records the computation.
        """
        if self.states is not None and length in self.states and not anew:
            return self.states[length]
        x, y = self.context(length)
        state = model.fit(x, y, categorical=self.categorical)
        if self.states is not None:
            self.states[length] = state
        return state

    def has_tasks_of(self, other: "Probe") -> bool:
        """Whether both hold bit-identical tasks."""
        # Compared as bytes, in which NaN equals NaN.
        pairs = zip(self[:3], other[:3], strict=True)
        return self.num_queries == other.num_queries and all(
            a.shape == b.shape and torch.equal(_bytes(a), _bytes(b)) for a, b in pairs
        )

    def to(self, device: torch.device) -> "Probe":
        """The same tasks on a device."""
        x, y, categorical = (z.to(device) for z in self[:3])
        return self._replace(x=x, y=y, categorical=categorical)


def _bytes(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.uint8)


def default_lengths(trained: int) -> list[int]:
    """Context lengths in rows, from an eighth to four times the trained length.

    Lengths beyond the trained one are at most 16,000 rows; none has fewer rows than classes.
    """
    most = max(trained, LONGEST)
    lengths = {round(factor * trained) for factor in FACTORS}
    return sorted(n for n in lengths if NUM_CLASSES <= n <= most) or [NUM_CLASSES]


def draw_probe(
    prior: Prior,
    lengths: Sequence[int],
    *,
    trained: int,
    num_tasks: int,
    feature_range: tuple[int, int],
    max_classes: int,
) -> Probe:
    """Draw probe tasks from a constant seed.

    They are the same for all `lengths` that do not exceed the default ones.

    Args:
        prior: The prior to draw from. Global random generators are left unchanged.
        lengths: Context lengths that will be needed, in rows.
        trained: Rows of the longest table of training.
        num_tasks: Number of tasks.
        feature_range: Fewest and most columns that a task may have.
        max_classes: Most classes that a task may have.

    Raises:
        ConfigError: A length is below the number of classes.
    """
    num_classes = min(NUM_CLASSES, max_classes)
    if min(lengths) < num_classes:
        raise ConfigError(
            f"lengths={list(lengths)}: a context of {min(lengths)} rows cannot show all "
            f"{num_classes} classes of a probe task; give lengths of at least {num_classes}."
        )
    fewest, most = feature_range
    rows = max(*default_lengths(trained), REFERENCE, *lengths)
    shape = TaskShape(
        batch_size=num_tasks,
        num_rows=rows + NUM_QUERIES,
        num_context=num_classes,
        num_features=max(fewest, min(NUM_FEATURES, most)),
        num_classes=num_classes,
    )
    tasks = drawn(prior, shape, torch.Generator().manual_seed(SEED))
    order = torch.stack([queried(y, NUM_QUERIES, first=num_classes) for y in tasks.y])
    x = tasks.x.gather(1, order.unsqueeze(-1).expand_as(tasks.x))
    return Probe(x, tasks.y.gather(1, order), tasks.categorical, NUM_QUERIES, trained)


def queried(y: Int[Tensor, " n"], num_queries: int, *, first: int) -> Int[Tensor, " n"]:
    """An order of rows such that the queries, the last rows, hold as many classes as possible.

    For each class that the queries lack, its last row is swapped with the first query whose class
    has several queries, unless the class has no row to spare. All other rows stay where they are.

    Args:
        y: Classes of the rows.
        num_queries: Number of queries.
        first: Rows at the beginning that stay in place, since they show all classes.
    """
    order = torch.arange(len(y), device=y.device)
    begin = len(y) - num_queries
    for label in y.unique().tolist():
        context, queries = y[order].split([begin, num_queries])
        spare = (context[first:] == label).nonzero()
        several = (torch.bincount(queries)[queries] > 1).nonzero()
        can_give = len(spare) > 0 and int((context == label).sum()) > 1
        if can_give and len(several) and not (queries == label).any():
            pair = torch.cat([spare[-1] + first, several[0] + begin])
            order[pair] = order[pair.flip(0)]
    return order

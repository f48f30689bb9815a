"""The contract of a prior: a distribution over labelled tables, sampled many at a time."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.errors import DataError
from tabicl_linear.types import Bool, Float, Int, Tensor


class TaskShape(NamedTuple):
    """Sizes of one batch of tasks; equal on all ranks.

    Attributes:
        batch_size: Tasks in the batch.
        num_rows: Rows of every task, context and queries together.
        num_context: Context rows; the others are queries. At least `num_classes`, so that every
            class can occur in the context.
        num_features: Exact number of columns.
        num_classes: The largest number of classes allowed.
    """

    batch_size: int
    num_rows: int
    num_context: int
    num_features: int
    num_classes: int

    def validate(self) -> "TaskShape":
        """Return the shape, or raise `DataError` naming the size that no task can have."""
        if self.batch_size < 1 or self.num_features < 1:
            raise DataError(f"A batch needs at least one task and one feature, got {self}.")
        if self.num_classes < 2:
            raise DataError(f"num_classes={self.num_classes}: a task needs at least two classes.")
        if not 2 <= self.num_context < self.num_rows:
            raise DataError(
                f"num_context={self.num_context} with num_rows={self.num_rows}: a task needs at "
                "least two context rows and at least one query row; lower num_context or raise "
                "num_rows."
            )
        if self.num_context < self.num_classes:
            raise DataError(
                f"num_context={self.num_context} with num_classes={self.num_classes}: every class "
                "must fit into the context; raise num_context or lower num_classes."
            )
        return self


class Tasks(NamedTuple):
    """Sampled tasks.

    Attributes:
        x: Features in float32, without infinities; may hold NaN for missing cells.
        y: Labels 0..K-1 in int64, K the number of classes of that task. Every class of the task
            occurs among its first `num_context` rows, and there are at least two.
        categorical: Which columns hold category codes.
    """

    x: Float[Tensor, "b n m"]
    y: Int[Tensor, "b n"]
    categorical: Bool[Tensor, "b m"]


WHERE = "docs/extending.md says what a prior promises"

DTYPES = {"x": torch.float32, "categorical": torch.bool}
"""Dtypes of features and category flags; labels have a check of their own."""


class Prior(ABC):
    """A distribution over tasks. Draws depend on the generator alone and never on global RNGs.

    Attributes:
        fewest_rows: The smallest number of rows of a task that it can draw.
    """

    fewest_rows: int = 3

    @abstractmethod
    def sample_tasks(self, shape: TaskShape, generator: torch.Generator) -> Tasks:
        """Draw `shape.batch_size` tasks on the generator's device.

        Raises:
            DataError: No task can have the shape.
        """

    def sample(
        self, shape: TaskShape, generator: torch.Generator
    ) -> tuple[Float[Tensor, "b n m"], Int[Tensor, "b n"]]:
        """Draw tasks and return their features and labels only."""
        tasks = self.sample_tasks(shape, generator)
        return tasks.x, tasks.y


def drawn(prior: Prior, shape: TaskShape, generator: torch.Generator) -> Tasks:
    """Draw tasks from any prior, perhaps a user's own, and check what it returns.

    Without the checks, a wrong draw would fail deep in a model, or not at all.

    Raises:
        DataError: The tasks have another shape or dtype than promised, labels are not classes
            `0..K-1` that all occur in the context, cells are infinite, or the draw used a global
            generator, so that no run could be repeated.
    """
    before = _global_generators()
    tasks = prior.sample_tasks(shape, generator)
    name = type(prior).__name__
    if _global_generators() != before:
        raise DataError(
            f"{name} draws from a global generator of torch or numpy; give every draw the one that "
            f"it is given (generator=generator), or one seeded by it; {WHERE}."
        )
    if not isinstance(tasks, Tasks):
        raise DataError(f"{name} gives {type(tasks).__name__}, not Tasks(x, y, categorical).")
    sizes = (shape.batch_size, shape.num_rows, shape.num_features)
    expected = {"x": sizes, "y": sizes[:2], "categorical": sizes[::2]}
    for part, size in expected.items():
        z = getattr(tasks, part)
        actual = tuple(z.shape) if isinstance(z, torch.Tensor) else type(z).__name__
        if actual != size:
            raise DataError(f"{name} gives {part} of {actual}, not {size}; {WHERE}.")
        if part != "y" and z.dtype != DTYPES[part]:
            raise DataError(f"{name} gives {part} in {z.dtype}, not {DTYPES[part]}; {WHERE}.")
    fault = _fault_of_values(tasks, shape)
    if fault is not None:
        raise DataError(f"{name} gives {fault}; {WHERE}.")
    return tasks


def check_repeatable(prior: Prior, shape: TaskShape) -> None:
    """Raise `DataError` if two draws from one seed differ, so that no run could be repeated."""
    first, second = (drawn(prior, shape, torch.Generator().manual_seed(0)) for _ in range(2))
    if not all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, second, strict=True)
    ):
        raise DataError(
            f"{type(prior).__name__} draws two different tasks from one seed; draw all numbers "
            f"from the given generator, and let no draw depend on earlier ones; {WHERE}."
        )


def _fault_of_values(tasks: Tasks, shape: TaskShape) -> str | None:
    """Describe what is wrong with labels or cells of the right shapes; None if nothing is.

    Values are checked on the CPU only: on a GPU, every batch would wait for the answer.
    """
    y, on_cpu = tasks.y, tasks.y.device.type == "cpu"
    if y.dtype != torch.int64 or (on_cpu and not ((y >= 0) & (y < shape.num_classes)).all()):
        return (
            f"labels from {y.min()} to {y.max()} in {y.dtype}; they have to be 0 to "
            f"{shape.num_classes - 1} at most, in torch.int64"
        )
    if not on_cpu:
        return None
    in_context = y.new_zeros((len(y), shape.num_classes), dtype=torch.bool)
    in_context.scatter_(1, y[:, : shape.num_context], True)
    wanted = (y.amax(1) + 1).clamp(min=2)
    faulty = (in_context.sum(1) != wanted).nonzero().flatten()
    if len(faulty):
        task = int(faulty[0])
        return (
            f"a task whose context has the classes {in_context[task].nonzero().flatten().tolist()},"
            f" and labels to {y[task].max()}; classes are numbered from 0, there are two at least, "
            "and each is in the context"
        )
    if tasks.x.isinf().any():
        return "x with infinities; missing cells are NaN"
    return None


def _global_generators() -> tuple[bytes, bytes, int]:
    """Return the states of the global generators of torch (on the CPU) and numpy."""
    numpy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), numpy["key"].tobytes(), numpy["pos"]

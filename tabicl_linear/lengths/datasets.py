"""Synthetic datasets that are read at many context lengths (appendix C.1)."""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.errors import ConfigError, DataError, counted
from tabicl_linear.priors.base import Prior, TaskShape
from tabicl_linear.priors.tabpfn_v1 import TabPFNv1Prior
from tabicl_linear.types import Bool, Float, Int, Tensor

LENGTHS = (250, 500, 750, *(1000 * 2**i for i in range(8)))
"""Context rows at which the paper reads: 250, 500, 750, 1,000, 2,000 ... 128,000."""
COVERED_ROWS = LENGTHS[0]
"""Every class occurs among this many first rows, or in the shortest context if it is shorter."""
MAX_TRIES = 1000


@dataclass(frozen=True)
class DatasetOptions:
    """Sizes and seed of the datasets; defaults are those of the paper or of the authors' code.

    Attributes:
        max_rows: Context rows of a dataset.
        lengths: Context rows to read at, increasing; if empty, the paper's up to `max_rows`.
        num_queries: Rows to predict, which follow the context and are the same at every length.
        num_features: Number of columns.
        num_classes: Number of classes; each occurs in the shortest context and among the queries.
        seed: Seed of all datasets. A dataset depends only on it, the dataset's index and the
            numbers of rows, columns and classes, and not on the machine: the prior draws on the
            CPU.
    """

    max_rows: int = LENGTHS[-1]
    lengths: tuple[int, ...] = ()
    num_queries: int = 100
    num_features: int = 10
    num_classes: int = 5
    seed: int = 42

    def __post_init__(self) -> None:
        if self.num_classes < 2 or self.num_features < 1:
            raise ConfigError(
                f"{counted(self.num_classes, 'class', 'classes')} and "
                f"{counted(self.num_features, 'feature')}: give at least two "
                "classes and one feature."
            )
        if self.num_queries < self.num_classes:
            raise ConfigError(
                f"{counted(self.num_queries, 'query', 'queries')} cannot show "
                f"{self.num_classes} classes: give more."
            )
        if self.seed < 0:
            raise ConfigError(f"seed={self.seed}: give a number of at least 0.")
        if not self.lengths:
            usual = tuple(length for length in LENGTHS if length <= self.max_rows)
            object.__setattr__(self, "lengths", usual or (self.max_rows,))
        self._check_lengths()

    def _check_lengths(self) -> None:
        lengths = " ".join(map(str, self.lengths))
        if list(self.lengths) != sorted(set(self.lengths)):
            raise ConfigError(f"lengths {lengths}: give each once, from short to long.")
        if self.lengths[-1] > self.max_rows:
            raise ConfigError(
                f"length {self.lengths[-1]} is beyond the {self.max_rows} context rows of a "
                "dataset: raise max-rows, or leave the length out."
            )
        if self.lengths[0] < self.num_classes:
            raise ConfigError(
                f"length {self.lengths[0]} is shorter than the {self.num_classes} classes that "
                "every context shows: give longer ones, or fewer classes."
            )

    @property
    def covered_rows(self) -> int:
        """Number of first rows among which every class occurs."""
        return min(COVERED_ROWS, self.lengths[0])


class LengthDataset(NamedTuple):
    """A task with a long context.

    Attributes:
        x: Context rows, then queries.
        y: Their labels.
        categorical: Which columns hold categories.
        num_queries: Rows at the end that are queries.
        checksum: Checksum of rows and labels, 12 hexadecimal digits.
    """

    x: Float[Tensor, "1 n m"]
    y: Int[Tensor, "1 n"]
    categorical: Bool[Tensor, "1 m"]
    num_queries: int
    checksum: str

    def context(
        self, num_rows: int | None = None
    ) -> tuple[Float[Tensor, "1 c m"], Int[Tensor, "1 c"]]:
        """The first rows of the context, all if None, and their labels."""
        rows = slice(-self.num_queries if num_rows is None else num_rows)
        return self.x[:, rows], self.y[:, rows]

    @property
    def queries(self) -> Float[Tensor, "1 q m"]:
        """The rows to predict."""
        return self.x[:, -self.num_queries :]

    @property
    def targets(self) -> Int[Tensor, " q"]:
        """Their labels."""
        return self.y[0, -self.num_queries :]

    def to(self, device: torch.device) -> "LengthDataset":
        """The same dataset on a device."""
        x, y, categorical = (z.to(device) for z in (self.x, self.y, self.categorical))
        return self._replace(x=x, y=y, categorical=categorical)


def draw_dataset(options: DatasetOptions, index: int, prior: Prior | None = None) -> LengthDataset:
    """Draw dataset `index`, on the CPU.

    As in the authors' code, the prior (TabPFN v1 if left out) draws datasets until the first rows
    and the queries each hold all classes. A draw has 2 to `num_classes` classes; the one that is
    returned has `num_classes`.

    Raises:
        DataError: None of 1,000 draws does.
    """
    prior = TabPFNv1Prior() if prior is None else prior
    rows = options.max_rows + options.num_queries
    # With nearly all rows as context, the prior need not reorder rows so that the context holds all
    # classes; the loop below checks for that.
    shape = TaskShape(1, rows, rows - 1, options.num_features, options.num_classes)
    for attempt in range(MAX_TRIES):
        seeds = np.random.SeedSequence(options.seed, spawn_key=(index, attempt))
        generator = torch.Generator().manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
        x, y, categorical = prior.sample_tasks(shape, generator)
        parts = y[0, : options.covered_rows], y[0, options.max_rows :]
        if all(len(part.unique()) == options.num_classes for part in parts):
            return LengthDataset(x, y, categorical, options.num_queries, _checksum(x, y))
    raise DataError(
        f"dataset {index}: no draw of {MAX_TRIES} shows all {options.num_classes} classes in "
        f"{options.covered_rows} context rows and {options.num_queries} queries; take fewer "
        "classes or more queries."
    )


def _checksum(x: Tensor, y: Tensor) -> str:
    digest = hashlib.sha256(x.numpy().tobytes())
    digest.update(y.numpy().tobytes())
    return digest.hexdigest()[:12]

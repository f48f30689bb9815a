"""The stream of training tasks: batch index -> seeds -> shape and content.

Nothing but the index needs saving for an exact resume, because a batch is a pure function of it.
"""

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.priors.base import Prior, TaskShape, drawn
from tabicl_linear.priors.shapes import TaskShapes

MIN_EVALUATION_QUERIES = 100


class Stage(IntEnum):
    """Which stream a batch belongs to. Streams of different stages share no seed."""

    TRAIN = 0
    VALIDATE = 1
    TEST = 2


class PriorStream(IterableDataset[TaskBatch]):
    """An endless stream of batches from `start` on; `batch(index)` draws any single one.

    The shape of batch i follows from (seed, stage, i) and is equal on all ranks; its content
    follows from (seed, stage, i, rank) and the device type. Each of the n workers of a
    `DataLoader` takes every n-th index, so neither their number nor a restart changes the batches.
    (Workers draw on one thread; several threads in the main process may round otherwise.)

    Args:
        seed: Not negative. A generator on the CPU keeps the low 32 bits of the mixed seed.
        device: Where the prior draws; CPU and CUDA generators draw different numbers.
        start: The first batch.
        replayed: Repeat batches 0 to `replayed - 1` over and over; 0 repeats nothing.
    """

    def __init__(
        self,
        prior: Prior,
        shapes: TaskShapes,
        *,
        seed: int,
        stage: Stage,
        rank: int = 0,
        device: torch.device | str = "cpu",
        start: int = 0,
        replayed: int = 0,
    ) -> None:
        super().__init__()
        self.prior = prior
        self.shapes = shapes
        self.seed = seed
        self.stage = stage
        self.rank = rank
        self.device = torch.device(device)
        self.start = start
        self.replayed = replayed

    def shape(self, index: int) -> TaskShape:
        """The sizes of batch `index`; the same on every rank."""
        rng = np.random.default_rng(self._seed(index))
        if self.stage is Stage.TRAIN:
            return self.shapes.sample(rng, index)
        return with_enough_queries(self.shapes.sample(rng))

    def batch(self, index: int) -> TaskBatch:
        """Draw batch `index` of this rank."""
        shape = self.shape(index)
        generator = torch.Generator(self.device)
        content = self._seed(index, self.rank).generate_state(1, np.uint64)
        generator.manual_seed(int(content[0]))
        tasks = drawn(self.prior, shape, generator)
        return TaskBatch(tasks.x, tasks.y, tasks.categorical, shape.num_context, index)

    def __iter__(self) -> Iterator[TaskBatch]:
        worker = get_worker_info()
        offset, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        index = self.start + offset
        while True:
            yield self.batch(index % self.replayed if self.replayed else index)
            index += stride

    def _seed(self, *key: int) -> np.random.SeedSequence:
        # As spawn keys, not entropy: numpy pads short entropy with zeros, so that (seed, stage, i)
        # and (seed, stage, i, 0) would be the same seed.
        return np.random.SeedSequence(self.seed, spawn_key=(int(self.stage), *key))


class FixedBatches(Dataset[TaskBatch]):
    """The first batches of a stream, each drawn at its first use and then kept in memory.

    Args:
        share: (position, n): this process holds every n-th batch from `position` on, so that n
            processes together hold each batch once.
    """

    def __init__(
        self, stream: PriorStream, num_batches: int, share: tuple[int, int] = (0, 1)
    ) -> None:
        self._stream = stream
        self._indices = range(share[0], num_batches, share[1])
        self._kept: dict[int, TaskBatch] = {}

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: int) -> TaskBatch:
        index = self._indices[position]
        if index not in self._kept:
            self._kept[index] = self._stream.batch(index)
        return self._kept[index]


def with_enough_queries(shape: TaskShape) -> TaskShape:
    """Return the shape with at least 100 query rows.

    The task gets at least 200 rows, and its last context rows become queries if necessary.
    """
    num_rows = max(shape.num_rows, 2 * MIN_EVALUATION_QUERIES)
    return shape._replace(
        num_rows=num_rows,
        num_context=min(shape.num_context, num_rows - MIN_EVALUATION_QUERIES),
    ).validate()

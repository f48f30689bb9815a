"""A prior with effects of real tables: missing cells, useless columns, odd scales."""

import math

import numpy as np
import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors import draws
from tabicl_linear.priors.base import Prior, Tasks, TaskShape, drawn
from tabicl_linear.priors.classes import cover_classes
from tabicl_linear.priors.effects.distortions import choose_columns, distort_, recode_
from tabicl_linear.priors.effects.extra_columns import add_columns, draw_counts
from tabicl_linear.priors.effects.imbalance import SURPLUS, keep_rows
from tabicl_linear.priors.effects.missing import draw_mechanisms, lose_cells_
from tabicl_linear.priors.tabpfn_v1 import TabPFNv1Prior
from tabicl_linear.types import Bool, Float, Int, Tensor


class WithTableEffects(Prior):
    """Draws tasks from a prior and changes their columns, cells and class shares.

    A table has exactly the requested number of columns: if some are extra ones, the inner prior
    draws fewer. The number of extra columns, and whether rows are thinned out by class, are drawn
    once per batch, like its shape; everything else is drawn per task. `docs/prior.md` lists the
    distributions.

    Args:
        prior: The inner prior; a TabPFN v1 prior if left out.
        irrelevant: Probability that a batch has columns of noise or row-shuffled copies of columns.
        redundant: Probability that a batch has copies and linear combinations of columns.
        identifiers: Probability that a batch has nominal columns of random categories.
        imbalanced: Probability that the rows of a batch are thinned out with weights by class.
        distorted: Probability that numeric columns of a task are replaced by monotone functions of
            them: exponentials, powers, ranks, steps, saturation.
        recoded: Probability that the categories of a task are renumbered at random from 0.
        missing: Probability that a task has missing cells.
        informative: Probability that missing cells depend on their value or on the label.
    """

    def __init__(
        self,
        prior: Prior | None = None,
        *,
        irrelevant: float = 0.3,
        redundant: float = 0.2,
        identifiers: float = 0.05,
        imbalanced: float = 0.1,
        distorted: float = 0.2,
        recoded: float = 0.5,
        missing: float = 0.2,
        informative: float = 0.5,
    ) -> None:
        self.prior = TabPFNv1Prior() if prior is None else prior
        self.fewest_rows = self.prior.fewest_rows
        self.irrelevant = _probability("irrelevant", irrelevant)
        self.redundant = _probability("redundant", redundant)
        self.identifiers = _probability("identifiers", identifiers)
        self.imbalanced = _probability("imbalanced", imbalanced)
        self.distorted = _probability("distorted", distorted)
        self.recoded = _probability("recoded", recoded)
        self.missing = _probability("missing", missing)
        self.informative = _probability("informative", informative)

    def sample_tasks(self, shape: TaskShape, generator: torch.Generator) -> Tasks:
        """Draw `shape.batch_size` tasks on the generator's device.

        Raises:
            DataError: If no task can have the shape, or the inner prior refuses it or breaks its
                promises (`priors.base.drawn`).
        """
        shape.validate()
        rng = draws.numpy_generator(generator)
        with torch.no_grad(), torch.autocast(generator.device.type, enabled=False):
            counts = draw_counts(
                rng,
                shape.num_features,
                irrelevant=self.irrelevant,
                redundant=self.redundant,
                identifiers=self.identifiers,
            )
            inner_shape = shape._replace(num_features=shape.num_features - sum(counts))
            tasks = self._draw_rows(inner_shape, rng, generator)
            x = tasks.x.transpose(1, 2).contiguous()
            categorical = tasks.categorical
            if sum(counts):
                x, categorical = add_columns(x, categorical, counts, generator)
            x = self._change_cells_(x, tasks.y, categorical, shape.num_classes, rng, generator)
            return Tasks(x.transpose(1, 2).contiguous(), tasks.y, categorical)

    def _draw_rows(
        self, shape: TaskShape, rng: np.random.Generator, generator: torch.Generator
    ) -> Tasks:
        """Draw tasks, with rows thinned out by class in some batches."""
        if not rng.uniform() < self.imbalanced:
            return drawn(self.prior, shape, generator)
        more = shape._replace(num_rows=math.ceil(SURPLUS * shape.num_rows))
        tasks = drawn(self.prior, more, generator)
        tasks = keep_rows(tasks, shape.num_rows, shape.num_classes, generator)
        return cover_classes(tasks, shape.num_context, shape.num_classes, generator)

    def _change_cells_(
        self,
        x: Float[Tensor, "b m n"],
        y: Int[Tensor, "b n"],
        categorical: Bool[Tensor, "b m"],
        num_classes: int,
        rng: np.random.Generator,
        generator: torch.Generator,
    ) -> Float[Tensor, "b m n"]:
        """Distort numeric columns, recode categorical ones and lose cells, in place."""
        b, m, _ = x.shape
        distort_(x, categorical, choose_columns(rng, b, m, self.distorted), rng)
        recode_(x, categorical, rng.uniform(size=b) < self.recoded, generator)
        losing = choose_columns(rng, b, m, self.missing)
        mechanism = draw_mechanisms(rng, b, self.informative)
        if losing.any():
            lose_cells_(
                x,
                y,
                chosen=losing,
                mechanism=mechanism,
                num_classes=num_classes,
                rng=rng,
                generator=generator,
            )
        return x


def _probability(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ConfigError(f"{name}={value}: a probability; use a number from 0 to 1.")
    return value

"""A mixture of priors: every task of a batch comes from one of them."""

import math
from collections.abc import Sequence

import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.base import Prior, Tasks, TaskShape, drawn
from tabicl_linear.priors.tabpfn_v1 import TabPFNv1Prior
from tabicl_linear.priors.trees import TreePrior

TOLERANCE = 1e-6


class Mixture(Prior):
    """Draws each task from one of several priors, independently of the other tasks.

    The number of tasks of each prior in a batch is multinomial, so the distribution of a task does
    not depend on the batch size. Each prior draws all its tasks of a batch at once, in the order of
    the list, and the tasks of all priors are placed at random positions in the batch.

    Args:
        priors: The priors; a TabPFN v1 prior and a tree prior if left out.
        weights: Probability of each; equal if left out.
    """

    def __init__(
        self, priors: Sequence[Prior] | None = None, weights: Sequence[float] | None = None
    ) -> None:
        self.priors = [TabPFNv1Prior(), TreePrior()] if priors is None else list(priors)
        if not self.priors:
            raise ConfigError("priors=[]: give at least one prior.")
        count = len(self.priors)
        self.weights = [1 / count] * count if weights is None else list(weights)
        self._check_weights()
        self.fewest_rows = max(
            prior.fewest_rows
            for prior, weight in zip(self.priors, self.weights, strict=True)
            if weight > 0
        )

    def _check_weights(self) -> None:
        where = f"weights={self.weights}"
        if len(self.weights) != len(self.priors):
            raise ConfigError(f"{where} for {len(self.priors)} priors: give one weight for each.")
        if not all(weight >= 0 for weight in self.weights):
            raise ConfigError(f"{where}: use weights of at least 0.")
        total = math.fsum(self.weights)
        if not abs(total - 1) <= TOLERANCE:
            raise ConfigError(f"{where} sum to {total:g}: divide them by their sum to get 1.")

    def sample_tasks(self, shape: TaskShape, generator: torch.Generator) -> Tasks:
        """Draw `shape.batch_size` tasks on the generator's device.

        Raises:
            DataError: If no task can have the shape, or a prior breaks its promises (`drawn`).
        """
        b, n, _, m, _ = shape.validate()
        device = generator.device
        weights = torch.tensor(self.weights, dtype=torch.float64, device=device)
        owner = torch.multinomial(weights, b, replacement=True, generator=generator)
        x = torch.empty(b, n, m, dtype=torch.float32, device=device)
        y = torch.empty(b, n, dtype=torch.int64, device=device)
        categorical = torch.empty(b, m, dtype=torch.bool, device=device)
        counts = torch.bincount(owner, minlength=len(self.priors)).tolist()
        for number, (prior, count) in enumerate(zip(self.priors, counts, strict=True)):
            if count:
                tasks = drawn(prior, shape._replace(batch_size=count), generator)
                index = (owner == number).nonzero().squeeze(1)
                x[index], y[index], categorical[index] = tasks
        return Tasks(x, y, categorical)

"""Distributions of the number of rows of a task, context and queries together."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from tabicl_linear.errors import ConfigError

MAX_SIGMA = 10


class RowDistribution(ABC):
    """A distribution over whole numbers of rows."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most rows that can be drawn."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> int:
        """Draw one number of rows; the result depends on the state of `rng` alone."""


@dataclass(frozen=True)
class FixedRows(RowDistribution):
    """Always `num_rows`."""

    num_rows: int

    def __post_init__(self) -> None:
        if self.num_rows < 1:
            raise ConfigError(f"num_rows={self.num_rows}: use at least one row.")

    @property
    def bounds(self) -> tuple[int, int]:
        """The same number as minimum and maximum."""
        return self.num_rows, self.num_rows

    def sample(self, rng: np.random.Generator) -> int:
        """The number; `rng` is not used."""
        return self.num_rows


@dataclass(frozen=True)
class UniformRows(RowDistribution):
    """Every number from `min_rows` to `max_rows` with the same probability."""

    min_rows: int
    max_rows: int

    def __post_init__(self) -> None:
        _check_bounds(self.bounds)

    @property
    def bounds(self) -> tuple[int, int]:
        """Both inclusive."""
        return self.min_rows, self.max_rows

    def sample(self, rng: np.random.Generator) -> int:
        """Draw uniformly."""
        return int(rng.integers(self.min_rows, self.max_rows, endpoint=True))


@dataclass(frozen=True)
class LogUniformRows(RowDistribution):
    """exp(U(ln min_rows, ln max_rows)), rounded (appendix "Scaling Pretraining Sequence Length").

    Before rounding, the mean is (max_rows - min_rows) / ln(max_rows / min_rows).
    """

    min_rows: int
    max_rows: int

    def __post_init__(self) -> None:
        _check_bounds(self.bounds)

    @property
    def bounds(self) -> tuple[int, int]:
        """Both inclusive."""
        return self.min_rows, self.max_rows

    def sample(self, rng: np.random.Generator) -> int:
        """Draw uniformly on the logarithmic scale."""
        return round(math.exp(rng.uniform(math.log(self.min_rows), math.log(self.max_rows))))


@dataclass(frozen=True)
class ShiftedLogNormalRows(RowDistribution):
    """min(min_rows + exp(N(mu, sigma)), max_rows), rounded: mostly short tasks, some very long.

    The defaults are the compute-matched long-sequence pretraining (section "Mitigation
    Strategies"), with the numbers of the authors' code. `ConfigError` if no `mu` gives `mean_rows`.

    Attributes:
        min_rows: Fewest rows.
        max_rows: Most rows.
        mean_rows: Mean number of rows, cut-off included; decides `mu`.
        sigma: Standard deviation of the normal variable.
    """

    min_rows: int = 200
    max_rows: int = 64_000
    mean_rows: float = 1138.0
    sigma: float = 1.6

    def __post_init__(self) -> None:
        _check_bounds(self.bounds)
        if not self.min_rows < self.mean_rows < self.max_rows:
            raise ConfigError(
                f"mean_rows={self.mean_rows}: use a value between min_rows={self.min_rows} and "
                f"max_rows={self.max_rows}."
            )
        if not 0 < self.sigma <= MAX_SIGMA:
            raise ConfigError(f"sigma={self.sigma}: use a number above 0 and at most {MAX_SIGMA}.")

    @property
    def bounds(self) -> tuple[int, int]:
        """Both inclusive."""
        return self.min_rows, self.max_rows

    @cached_property
    def mu(self) -> float:
        """Mean of the normal variable that makes the mean number of rows `mean_rows`."""
        widest, mean = self.max_rows - self.min_rows, self.mean_rows - self.min_rows
        # The cut-off lowers the mean, so mu is at least that of the uncut variable (1 covers
        # rounding); with mu 40 deviations above the cut-off, every draw is cut off.
        low = math.log(mean) - self.sigma**2 / 2 - 1
        high = math.log(widest) + 40 * self.sigma
        return float(brentq(lambda mu: _mean_below(widest, mu, self.sigma) - mean, low, high))

    def sample(self, rng: np.random.Generator) -> int:
        """Draw from the shifted log-normal distribution, cut off at `max_rows`."""
        above = math.exp(min(rng.normal(self.mu, self.sigma), math.log(self.max_rows)))
        return min(round(self.min_rows + above), self.max_rows)


def _mean_below(widest: int, mu: float, sigma: float) -> float:
    """E[min(exp(N(mu, sigma)), widest)], in logarithms so that no factor overflows."""
    z = (math.log(widest) - mu) / sigma
    below = math.exp(mu + sigma**2 / 2 + log_ndtr(z - sigma))
    return below + widest * math.exp(log_ndtr(-z))


def _check_bounds(bounds: tuple[int, int]) -> None:
    low, high = bounds
    if not 1 <= low <= high:
        raise ConfigError(f"min_rows={low}, max_rows={high}: use 1 <= min_rows <= max_rows.")

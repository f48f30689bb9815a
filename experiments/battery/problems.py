"""Fixed synthetic problems with a known answer: what classifiers can and cannot learn."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

QUERIES = 1000
Drawn = tuple[pd.DataFrame, npt.NDArray[np.float64]]
"""Rows, and the true probability of each class `[rows, classes]`."""


class Problem(NamedTuple):
    """A problem with a known answer.

    Attributes:
        name: Its name.
        rows: Training rows.
        draw: Draws as many rows with a generator.
    """

    name: str
    rows: int
    draw: Callable[[np.random.Generator, int], Drawn]


class Sample(NamedTuple):
    """Training rows and queries.

    Attributes:
        x: Training rows.
        y: Their labels.
        queries: Rows to predict.
        labels: Their labels.
        truth: Their true probabilities; nobody can be expected to do better.
    """

    x: pd.DataFrame
    y: npt.NDArray[np.int64]
    queries: pd.DataFrame
    labels: npt.NDArray[np.int64]
    truth: npt.NDArray[np.float64]


def sample(problem: Problem, seed: int = 0) -> Sample:
    """Rows of a problem, the same ones each time."""
    rng = np.random.default_rng([seed, problem.rows])
    x, truth = problem.draw(rng, problem.rows + QUERIES)
    y = (rng.random((len(x), 1)) > truth.cumsum(1)[:, :-1]).sum(1)
    cut = problem.rows
    return Sample(x[:cut], y[:cut], x[cut:].reset_index(drop=True), y[cut:], truth[cut:])


def _frame(x: npt.NDArray[np.float64]) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])


def _two(of_one: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.stack([1 - of_one, of_one], axis=1)


def _logistic(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.exp(-x))


def clusters(classes: int) -> Callable[[np.random.Generator, int], Drawn]:
    """Two round clusters for each class, in eight columns."""

    def draw(rng: np.random.Generator, rows: int) -> Drawn:
        centres = 1.5 * rng.normal(size=(classes, 2, 8))
        own = rng.integers(classes, size=rows), rng.integers(2, size=rows)
        x = centres[own] + rng.normal(size=(rows, 8))
        distances = np.square(x[:, None, None] - centres).sum(-1)
        density = np.exp(-distances / 2 + distances.min((1, 2), keepdims=True) / 2).sum(2)
        return _frame(x), density / density.sum(1, keepdims=True)

    return draw


def parity(columns: int) -> Callable[[np.random.Generator, int], Drawn]:
    """Whether an odd number of columns is positive; seven columns beside say nothing."""

    def draw(rng: np.random.Generator, rows: int) -> Drawn:
        x = rng.normal(size=(rows, columns + 7))
        odd = (x[:, :columns] > 0).sum(1) % 2
        return _frame(x), _two(0.05 + 0.9 * odd)

    return draw


def equality(rng: np.random.Generator, rows: int) -> Drawn:
    """Whether two columns hold the same of ten letters; three columns beside say nothing."""
    x = rng.integers(10, size=(rows, 5))
    same = rng.random(rows) < 0.4
    x[same, 1] = x[same, 0]
    letters = np.array(list("abcdefghij"))[x]
    frame = pd.DataFrame(letters, columns=[f"x{i}" for i in range(5)])
    return frame, _two(0.05 + 0.9 * (x[:, 0] == x[:, 1]))


def periodic(rng: np.random.Generator, rows: int) -> Drawn:
    """Six waves along a column; four columns beside say nothing."""
    x = rng.uniform(size=(rows, 5))
    return _frame(x), _two(_logistic(4 * np.sin(12 * np.pi * x[:, 0])))


def many_categories(rng: np.random.Generator, rows: int) -> Drawn:
    """Sixty categories with a rate each, and a column that adds to it."""
    rates = 2 * rng.normal(size=60)
    codes = rng.integers(60, size=rows)
    x = rng.normal(size=(rows, 2))
    frame = _frame(x).assign(place=[f"place {code}" for code in codes])
    return frame, _two(_logistic(rates[codes] + x[:, 0]))


def few_informative(rng: np.random.Generator, rows: int) -> Drawn:
    """Three columns of sixty tell the class."""
    x = rng.normal(size=(rows, 60))
    return _frame(x), _two(_logistic(2 * x[:, 0] - 2 * x[:, 1] + 2 * x[:, 2] * (x[:, 0] > 0)))


def weak_columns(rng: np.random.Generator, rows: int) -> Drawn:
    """Fifty columns, each of which moves the odds a little."""
    x = rng.normal(size=(rows, 50))
    return _frame(x), _two(_logistic(x @ rng.normal(size=50) / 3))


def rare_class(rng: np.random.Generator, rows: int) -> Drawn:
    """A class of about one row in fifty, in a corner."""
    x = rng.normal(size=(rows, 6))
    return _frame(x), _two(_logistic(4 * (x[:, 0] + x[:, 1]) - 11))


def rules(rng: np.random.Generator, rows: int) -> Drawn:
    """Nested questions about single columns, with four classes."""
    x = rng.normal(size=(rows, 10))
    leaf = np.where(x[:, 0] > 0.2, 2 * (x[:, 1] > 0) + (x[:, 2] > 0), 3 * (x[:, 3] > -0.3))
    return _frame(x), 0.04 + 0.84 * np.eye(4)[leaf]


PROBLEMS = (
    *(Problem(f"{classes} clusters", 500, clusters(classes)) for classes in (2, 5, 10)),
    Problem("parity of two", 500, parity(2)),
    Problem("parity of three", 2000, parity(3)),
    Problem("equality", 1000, equality),
    Problem("periodic", 1000, periodic),
    Problem("60 categories", 1000, many_categories),
    Problem("3 of 60 columns", 500, few_informative),
    *(Problem(f"50 weak columns, {rows:,} rows", rows, weak_columns) for rows in (150, 1000)),
    Problem("a rare class", 1000, rare_class),
    *(Problem(f"rules, {rows:,} rows", rows, rules) for rows in (200, 2000, 20_000)),
)

"""Hyper-parameters of the tree prior: how each is drawn, many tasks at a time."""

from typing import NamedTuple

import numpy as np

MIN_DEPTH, MAX_DEPTH = 2, 8
MAX_NODES_PASSED = 128
"""Maximum number of nodes that a row passes in all trees of a task; bounds the time of a draw."""
COMPARED_SHARE = 0.4
MIXED_SHARE = 0.3
NOISE_FREE_SHARE = 0.35
FLIPPED_SHARE = 0.2
NOMINAL_SHARE = 0.6
COPULAS = ("independent", "factors", "chain")
MARGINALS = ("normal", "uniform", "heavy", "skewed", "ordinal")


class TargetParameters(NamedTuple):
    """Parameters of each task's target; every field is an array `[b]`.

    Attributes:
        num_classes: Number of classes; some may not occur.
        compared: The class is the largest of `num_classes` outputs; otherwise one output is cut.
        num_trees: Trees whose leaf values are added.
        depth: Levels of decisions in the deepest trees; others have one less.
        num_relevant: Columns that trees can split on.
        focus: Standard deviation of the logarithms of a column's weight from tree to tree: a large
            one gives trees on few columns each, so that the target is close to additive.
        spread: Share of a node's range, in quantiles, in which its threshold is uniform.
        level_scale: Factor by which the deviation of a node's contribution changes per level.
        tree_scale: Factor by which contributions change from tree to tree, as in boosting.
        smooth_share: Weight of a smooth part (linear or a small network) besides the trees.
        smooth_linear: Whether that part is linear.
        noise_std: Standard deviation of the noise on the standardised outputs.
        flip_rate: Share of labels that are replaced by random ones.
        concentration: Concentration of the Dirichlet distribution of class shares (cut), or inverse
            deviation of class offsets (compared); small values give imbalanced classes.
    """

    num_classes: np.ndarray
    compared: np.ndarray
    num_trees: np.ndarray
    depth: np.ndarray
    num_relevant: np.ndarray
    focus: np.ndarray
    spread: np.ndarray
    level_scale: np.ndarray
    tree_scale: np.ndarray
    smooth_share: np.ndarray
    smooth_linear: np.ndarray
    noise_std: np.ndarray
    flip_rate: np.ndarray
    concentration: np.ndarray

    def select(self, index: np.ndarray) -> "TargetParameters":
        """Return the parameters of the tasks in `index`."""
        return TargetParameters(*(field[index] for field in self))


class ColumnParameters(NamedTuple):
    """How each task's columns are drawn.

    Attributes:
        copula: `[b]`, index into `COPULAS`: how the columns depend on each other.
        strength: `[b]`, how strongly they do, 0 to 1.
        num_clusters: `[b]`, groups of rows with their own centres; 1 means no groups.
        separation: `[b]`, standard deviation of the centres.
        marginal: `[b m]`, index into `MARGINALS`, for columns that are not nominal.
        tail: `[b m]`, heaviness of the marginal.
        num_levels: `[b m]`, levels of an ordinal column.
        num_categories: `[b m]`, categories of a nominal column; 0 elsewhere.
        skew: `[b m]`, standard deviation of the logarithms of a column's category weights.
    """

    copula: np.ndarray
    strength: np.ndarray
    num_clusters: np.ndarray
    separation: np.ndarray
    marginal: np.ndarray
    tail: np.ndarray
    num_levels: np.ndarray
    num_categories: np.ndarray
    skew: np.ndarray


def draw_target_parameters(
    rng: np.random.Generator, count: int, num_features: int, num_classes: int
) -> TargetParameters:
    """Draw the parameters of the targets of `count` tasks."""

    def happens(probability: float) -> np.ndarray:
        return rng.uniform(size=count) < probability

    spread_classes = np.rint(rng.uniform(2, num_classes, count)).astype(np.int64)
    depth = rng.integers(MIN_DEPTH, MAX_DEPTH, count, endpoint=True)
    most_trees = MAX_NODES_PASSED // depth
    return TargetParameters(
        num_classes=np.where(happens(0.5), 2, spread_classes),
        compared=happens(COMPARED_SHARE),
        num_trees=np.floor(log_uniform(rng, np.ones(count), most_trees + 1.0)).astype(np.int64),
        depth=depth,
        num_relevant=np.ceil(num_features * rng.uniform(size=count) ** 0.7).astype(np.int64),
        focus=np.where(happens(0.5), 0.0, rng.uniform(0, 4, count)),
        spread=rng.uniform(0.3, 1.0, count),
        level_scale=rng.uniform(0.5, 1.2, count),
        tree_scale=np.where(happens(0.5), 1.0, rng.uniform(0.6, 1.0, count)),
        smooth_share=np.where(happens(MIXED_SHARE), rng.uniform(0.1, 0.7, count), 0.0),
        smooth_linear=happens(0.5),
        noise_std=np.where(
            happens(NOISE_FREE_SHARE), 0.0, log_uniform(rng, np.full(count, 0.02), 1.0)
        ),
        flip_rate=np.where(happens(FLIPPED_SHARE), rng.uniform(0, 0.2, count), 0.0),
        concentration=log_uniform(rng, np.full(count, 0.7), 30.0),
    )


def draw_column_parameters(
    rng: np.random.Generator, count: int, num_features: int, max_categories: int
) -> ColumnParameters:
    """Draw the column parameters of `count` tasks, with at most `max_categories` categories.

    A task has nominal columns with probability `NOMINAL_SHARE`; then each column is nominal with
    probability U(0, 1).
    """
    size = (count, num_features)
    share = np.where(rng.uniform(size=count) < NOMINAL_SHARE, rng.uniform(size=count), 0.0)
    is_nominal = rng.uniform(size=size) < share[:, None]
    # Half of the columns have fewer than about seven categories, some have hundreds.
    exponent = rng.uniform(size=size) ** 2
    categories = np.rint(2 * (max_categories / 2) ** exponent).astype(np.int64)
    # Every task has its own preferred marginals.
    weights = rng.dirichlet(np.full(len(MARGINALS), 0.7), count).cumsum(1)
    marginal = (rng.uniform(size=size)[..., None] > weights[:, None, :-1]).sum(-1)
    clustered = rng.uniform(size=count) < 0.3
    return ColumnParameters(
        copula=rng.integers(len(COPULAS), size=count),
        strength=rng.uniform(0.2, 0.98, count),
        num_clusters=np.where(clustered, rng.integers(2, 8, count, endpoint=True), 1),
        separation=rng.uniform(0.5, 3.0, count),
        marginal=marginal,
        tail=rng.uniform(0.3, 1.5, size),
        num_levels=rng.integers(2, 20, size, endpoint=True),
        num_categories=np.where(is_nominal, categories, 0),
        skew=rng.uniform(0, 1.5, size),
    )


def log_uniform(rng: np.random.Generator, low: np.ndarray, high: np.ndarray | float) -> np.ndarray:
    """Draw numbers between `low` and `high` whose logarithms are uniform."""
    return np.exp(rng.uniform(np.log(low), np.log(high)))

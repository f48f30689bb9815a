"""Hyper-parameters of the TabPFN v1 prior: how each is drawn, many tasks at a time.

Every distribution is the one of the authors' code; the table in `docs/prior.md` lists them. A
"meta" distribution first draws its own parameters for every task.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

ACTIVATIONS = ("tanh", "identity", "relu")


class NetworkParameters(NamedTuple):
    """Parameters of each task's random network; every field is an array `[b]`.

    Attributes:
        num_layers: Number of linear maps, including the one from the causes; the output map of a
            network that is not causal is not counted.
        hidden_dim: Units of a layer.
        num_causes: Inputs of the network.
        dropout: Probability that a weight is zero; unused with `block_wise`.
        noise_std: Standard deviation of the Gaussian noise after every layer.
        init_std: Standard deviation of the weights before dropout.
        activation: Index into `ACTIVATIONS`.
        is_causal: Columns and target are units of the network; otherwise its inputs and output.
        unit_noise: Every unit has a noise level of its own, |N(0, noise_std)|.
        y_is_effect: The target is the last unit instead of a random one.
        block_wise: Weights are block-diagonal instead of dropped at random.
        sort_features: Columns are in the order of the units.
        in_clique: Columns and target are neighbouring units.
        mixed_causes: Causes have mixed types instead of being all normal.
    """

    num_layers: np.ndarray
    hidden_dim: np.ndarray
    num_causes: np.ndarray
    dropout: np.ndarray
    noise_std: np.ndarray
    init_std: np.ndarray
    activation: np.ndarray
    is_causal: np.ndarray
    unit_noise: np.ndarray
    y_is_effect: np.ndarray
    block_wise: np.ndarray
    sort_features: np.ndarray
    in_clique: np.ndarray
    mixed_causes: np.ndarray

    def select(self, index: int) -> "NetworkParameters":
        """Return the parameters of one task, each a number."""
        return NetworkParameters(*(field[index] for field in self))


class TargetParameters(NamedTuple):
    """How each task's target becomes classes; every field is an array `[b]`.

    Attributes:
        num_classes: Classes before the empty ones are dropped.
        by_rank: Boundaries are targets of random rows; otherwise standard normal numbers.
        ordered_probability: Probability that class ids keep the order of the target.
    """

    num_classes: np.ndarray
    by_rank: np.ndarray
    ordered_probability: np.ndarray


class ColumnParameters(NamedTuple):
    """How each task's columns are processed.

    Attributes:
        missing: `[b]`, the probability that a cell is missing; 0 in most tasks.
        to_ranks: `[b]`, columns become ranks; otherwise outliers are pulled in.
        num_categories: `[b m]`, categories that a column is cut into; 0 leaves it numeric.
    """

    missing: np.ndarray
    to_ranks: np.ndarray
    num_categories: np.ndarray


def meta_gamma(
    rng: np.random.Generator, count: int, *, max_alpha: float, max_scale: float, lower: int
) -> np.ndarray:
    """Draw `lower + round(Gamma(a, s / a))`, a log-uniform on [1, max_alpha], s ~ U(0, max_scale).

    The gamma distribution has shape `a` and mean `s`.
    """
    alpha = np.exp(rng.uniform(0, np.log(max_alpha), count))
    scale = rng.uniform(0, max_scale, count)
    return lower + np.rint(rng.gamma(alpha, scale / alpha)).astype(np.int64)


def meta_beta(rng: np.random.Generator, count: int, *, low: float, high: float) -> np.ndarray:
    """Draw Beta(b, k) with b and k uniform on [low, high]."""
    return rng.beta(rng.uniform(low, high, count), rng.uniform(low, high, count))


def log_scaled_truncated_normal(
    rng: np.random.Generator,
    *count: int,
    min_mean: float | np.ndarray,
    max_mean: float | np.ndarray,
) -> np.ndarray:
    """Draw N(mu, sigma) truncated to >= 0; mu log-uniform on [min_mean, max_mean].

    `sigma` is `mu` times a log-uniform number on [0.01, 1].
    """
    mean = np.exp(rng.uniform(np.log(min_mean), np.log(max_mean), count))
    ratio = np.exp(rng.uniform(np.log(0.01), 0, count))
    # The upper tail above zero, in logarithms: exact however far the mean is from zero.
    log_tail = log_ndtr(1 / ratio) + np.log1p(-rng.uniform(size=count))
    return mean * (1 - ratio * ndtri_exp(log_tail))


def meta_choice(
    rng: np.random.Generator, *count: int, choices: int, low: float, high: float
) -> np.ndarray:
    """Draw an index by softmax; the first choice has the logit 1, the others U(low, high)."""
    logits = rng.uniform(low, high, (*count, choices))
    logits[..., 0] = 1
    return np.argmax(logits + rng.gumbel(size=logits.shape), -1)


def meta_flag(rng: np.random.Generator, *count: int) -> np.ndarray:
    """Draw booleans by `meta_choice` between True, with logit 1, and False, with logit U(-3, 5)."""
    return meta_choice(rng, *count, choices=2, low=-3.0, high=5.0) == 0


def class_count(rng: np.random.Generator, largest: np.ndarray) -> np.ndarray:
    """Draw 2 with probability one half, else `round(U(2, largest))`, for each entry of `largest`.

    The smallest and the largest value get half the weight of the others.
    """
    spread = np.rint(rng.uniform(2, np.maximum(largest, 2))).astype(np.int64)
    return np.where(rng.uniform(size=np.shape(largest)) < 0.5, 2, spread)


def draw_network_parameters(
    rng: np.random.Generator, count: int, num_features: int
) -> NetworkParameters:
    """Draw the parameters of the networks of `count` tasks with `num_features` columns each."""
    # One call for each kind of distribution: on a CPU the calls take longer than the numbers.
    is_causal, *flags = meta_flag(rng, 7, count)
    noise_std, init_std = log_scaled_truncated_normal(
        rng, 2, count, min_mean=np.array([[1e-4], [0.01]]), max_mean=np.array([[0.3], [10.0]])
    )
    hidden_dim = meta_gamma(rng, count, max_alpha=3.0, max_scale=100.0, lower=4)
    num_causes = meta_gamma(rng, count, max_alpha=3.0, max_scale=7.0, lower=2)
    return NetworkParameters(
        num_layers=meta_gamma(rng, count, max_alpha=2.0, max_scale=3.0, lower=2),
        hidden_dim=np.where(is_causal, np.maximum(hidden_dim, 1 + 2 * num_features), hidden_dim),
        num_causes=np.where(is_causal, num_causes, num_features),
        dropout=np.minimum(0.6 * meta_beta(rng, count, low=0.1, high=5.0), 0.99),
        noise_std=noise_std,
        init_std=init_std,
        activation=meta_choice(rng, count, choices=3, low=-5.0, high=6.0),
        is_causal=is_causal,
        unit_noise=flags[0],
        y_is_effect=flags[1],
        block_wise=flags[2],
        sort_features=flags[3],
        in_clique=flags[4],
        mixed_causes=~flags[5],
    )


def draw_target_parameters(
    rng: np.random.Generator, count: int, num_classes: int
) -> TargetParameters:
    """Draw how the targets of `count` tasks become at most `num_classes` classes."""
    return TargetParameters(
        num_classes=class_count(rng, np.full(count, num_classes)),
        by_rank=~meta_flag(rng, count),
        ordered_probability=rng.uniform(0, 0.5, count),
    )


def draw_column_parameters(
    rng: np.random.Generator, count: int, num_features: int
) -> ColumnParameters:
    """Draw how the columns of `count` tasks are processed.

    Half of the tasks can have missing cells; such a task, with level `p ~ U(0, 0.1)`, has them with
    probability `p`. A task has categorical columns with probability Beta(b, k), b and k uniform on
    [0.5, 3]; then each column is categorical with probability U(0, 1), with a number of categories
    from `class_count` up to `max(round(Gamma(1, 10)), 2)`.
    """
    level = rng.uniform(0, 0.1, count)
    is_missing = (rng.uniform(size=count) < 0.5) & (rng.uniform(size=count) < level)
    any_categorical = rng.uniform(size=count) < meta_beta(rng, count, low=0.5, high=3.0)
    share = np.where(any_categorical, rng.uniform(size=count), 0.0)
    size = (count, num_features)
    largest = np.maximum(np.rint(rng.gamma(1.0, 10.0, size)), 2)
    is_categorical = rng.uniform(size=size) < share[:, None]
    return ColumnParameters(
        missing=np.where(is_missing, level, 0.0),
        to_ranks=meta_flag(rng, count),
        num_categories=np.where(is_categorical, class_count(rng, largest), 0),
    )

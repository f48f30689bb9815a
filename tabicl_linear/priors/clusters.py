"""The cluster prior: every class is a mixture of normal distributions, on a plane or a surface."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors import draws
from tabicl_linear.priors.base import Prior, Tasks, TaskShape
from tabicl_linear.priors.bins import argsort
from tabicl_linear.priors.keeping import Drawn, cut_into_codes, flip_classes, kept_tasks
from tabicl_linear.priors.tabpfn_v1.columns import standardise
from tabicl_linear.types import Bool, Float, Int, Tensor

MOST_DIMENSIONS = 8
"""Largest dimension of a surface on which rows lie; otherwise rows fill the whole space."""
SURFACE_SHARE, OWN_SHARE, GROUPED_SHARE = 0.5, 0.5, 0.4
HEAVY_SHARE, FLIPPED_SHARE, NOMINAL_SHARE = 0.2, 0.2, 0.3
DISTANCES = (0.8, 8.0)
"""Range of the mean distance of two centres (log-uniform); clusters have deviations of about 1."""
MOST_CATEGORIES = 20
MOST_CLUSTERS = 10_000
"""Most clusters of a class; a task holds several vectors for each of them."""


class Parameters(NamedTuple):
    """How each task is drawn; every field is an array `[b]` unless it says otherwise.

    Attributes:
        num_classes: Number of classes.
        num_clusters: `[b y]`, clusters of each class; 0 for classes that the task lacks.
        dimensions: Dimension of the space in which the clusters lie.
        is_surface: Whether rows lie on a surface, so that the columns are functions of
            `dimensions` numbers.
        bend: Deviation of the curved part of these functions; that of the linear part is one.
        blur: Deviation of the noise added to columns of a surface, relative to the column's.
        informative: Number of dimensions in which centres differ.
        distance: Mean distance of two centres.
        grouped: Share of the variance of centres that all clusters of a class have in common.
        has_own: Whether each cluster has its own covariance, not a common one.
        spread: Deviation of the logarithm of a cluster's deviation in one direction.
        is_heavy: Whether rows have the tails of Student's t with three degrees of freedom.
        flip_rate: Share of labels that are replaced by random ones.
        nominal_share: Share of columns that are cut into categories.
    """

    num_classes: np.ndarray
    num_clusters: np.ndarray
    dimensions: np.ndarray
    is_surface: np.ndarray
    bend: np.ndarray
    blur: np.ndarray
    informative: np.ndarray
    distance: np.ndarray
    grouped: np.ndarray
    has_own: np.ndarray
    spread: np.ndarray
    is_heavy: np.ndarray
    flip_rate: np.ndarray
    nominal_share: np.ndarray


def draw_parameters(
    rng: np.random.Generator, count: int, num_features: int, num_classes: int, max_clusters: int
) -> Parameters:
    """Draw the parameters of `count` tasks."""

    def happens(share: float) -> np.ndarray:
        return rng.uniform(size=count) < share

    def log_uniform(low: float, high: float) -> np.ndarray:
        return np.exp(rng.uniform(np.log(low), np.log(high), count))

    own_classes = rng.integers(2, num_classes, count, endpoint=True)
    most = np.minimum(log_uniform(1.0, max_clusters + 1.0).astype(np.int64), max_clusters)
    clusters = rng.integers(1, most[:, None], (count, num_classes), endpoint=True)
    is_surface = happens(SURFACE_SHARE)
    few = rng.integers(1, min(MOST_DIMENSIONS, num_features), count, endpoint=True)
    dimensions = np.where(is_surface, few, num_features)
    return Parameters(
        num_classes=own_classes,
        num_clusters=clusters * (np.arange(num_classes) < own_classes[:, None]),
        dimensions=dimensions,
        is_surface=is_surface,
        bend=np.where(happens(0.5), rng.uniform(0.3, 2.0, count), 0.0),
        blur=log_uniform(0.01, 0.3),
        informative=rng.integers(1, dimensions, endpoint=True),
        distance=log_uniform(*DISTANCES),
        grouped=np.where(happens(GROUPED_SHARE), rng.uniform(0.3, 0.9, count), 0.0),
        has_own=happens(OWN_SHARE),
        spread=rng.uniform(0.0, 1.0, count),
        is_heavy=happens(HEAVY_SHARE),
        flip_rate=np.where(happens(FLIPPED_SHARE), rng.uniform(0, 0.2, count), 0.0),
        nominal_share=np.where(happens(NOMINAL_SHARE), rng.uniform(0, 1, count), 0.0),
    )


class Clusters(NamedTuple):
    """The clusters of all tasks. Rows of a cluster are centre + H(second) H(first) (scales * z).

    z is standard normal and H(v) = 1 - 2 v v^T is a reflection. So a covariance is stored as three
    vectors, and its inverse is exact.

    Attributes:
        owner: Class of each cluster.
        weights: Probability of each cluster; 0 for clusters that the task lacks.
        centres: Means of the clusters.
        scales: Standard deviations along the axes before the reflections.
        first, second: Unit vectors of the two reflections.
    """

    owner: Int[Tensor, "b g"]
    weights: Float[Tensor, "b g"]
    centres: Float[Tensor, "b g d"]
    scales: Float[Tensor, "b g d"]
    first: Float[Tensor, "b g d"]
    second: Float[Tensor, "b g d"]

    def rows(
        self, num_rows: int, is_heavy: Bool[Tensor, " b"], generator: torch.Generator
    ) -> tuple[Float[Tensor, "b d n"], Int[Tensor, "b n"]]:
        """Draw rows and their classes."""
        b, _, d = self.centres.shape
        group = torch.multinomial(self.weights, num_rows, replacement=True, generator=generator)
        index = group.unsqueeze(1).expand(b, d, num_rows)

        def of_rows(field: Tensor) -> Tensor:
            return field.mT.gather(2, index)

        noise = draws.normal(b, d, num_rows, generator=generator)
        tail = draws.normal(b, 3, num_rows, generator=generator).square().mean(1, keepdim=True)
        noise = torch.where(is_heavy.view(b, 1, 1), noise * tail.clamp(min=1e-3).rsqrt(), noise)
        noise = _reflected(noise * of_rows(self.scales), of_rows(self.first), 1)
        z = of_rows(self.centres) + _reflected(noise, of_rows(self.second), 1)
        return z, self.owner.gather(1, group)

    def scores(self, z: Float[Tensor, "b d n"], num_classes: int) -> Float[Tensor, "b n y"]:
        """Log density of each class (up to a constant): the best classifier if tails are normal."""
        from_centre = z.mT.unsqueeze(1) - self.centres.unsqueeze(2)
        back = _reflected(from_centre, self.second.unsqueeze(2), 3)
        back = _reflected(back, self.first.unsqueeze(2), 3) / self.scales.unsqueeze(2)
        norm = self.scales.log().sum(2) - self.weights.log()
        density = -back.square().sum(3) / 2 - norm.unsqueeze(2)
        of_class = torch.arange(num_classes, device=z.device) == self.owner.unsqueeze(2)
        apart = density.unsqueeze(3).masked_fill(~of_class.unsqueeze(2), -torch.inf)
        return apart.logsumexp(1)


def draw_clusters(
    p: Parameters, num_features: int, rng: np.random.Generator, generator: torch.Generator
) -> Clusters:
    """Draw weights, centres and covariances; dimensions beyond `p.dimensions` are pure noise."""
    b, num_classes = p.num_clusters.shape
    device, largest = generator.device, int(p.num_clusters.max())
    size = (b, num_classes, largest)
    is_there = np.arange(largest) < p.num_clusters[..., None]
    # Shares of classes, and of clusters within a class, are Dirichlet numbers.
    shares = rng.gamma(np.exp(rng.uniform(0, np.log(50), (b, 1))), size=(b, num_classes))
    within = rng.gamma(3.0, size=size) * is_there + 1e-12
    weights = (shares * (p.num_clusters > 0))[..., None] * within * is_there
    weights /= within.sum(2, keepdims=True)
    weights = weights.reshape(b, -1) / weights.sum((1, 2))[:, None]
    place = argsort(draws.uniform(b, num_features, generator=generator))
    is_used = place < _column(p.dimensions, device)
    is_told = place < _column(p.informative, device)
    deviation = p.distance / np.sqrt(2.0 * p.informative)
    grouped = _column(p.grouped, device).unsqueeze(2).unsqueeze(3)
    together = draws.normal(b, num_classes, 1, num_features, generator=generator)
    apart = draws.normal(*size, num_features, generator=generator)
    centres = (grouped.sqrt() * together + (1 - grouped).sqrt() * apart).flatten(1, 2)
    centres = centres * (_column(deviation, device) * is_told).unsqueeze(1)
    g = num_classes * largest
    owner = torch.arange(num_classes, device=device).repeat_interleave(largest).expand(b, g)
    # Tasks with a common covariance use that of their first cluster.
    own = torch.as_tensor(p.has_own, device=device).view(b, 1, 1)
    shape = draws.normal(3, b, g, num_features, generator=generator)
    spread, first, second = torch.where(own, shape, shape[:, :, :1])
    mask = is_used.unsqueeze(1)
    scales = (spread * _column(p.spread, device).unsqueeze(2) * mask).exp()
    probability = torch.as_tensor(weights, dtype=torch.float32, device=device)
    return Clusters(owner, probability, centres, scales, _unit(first, mask), _unit(second, mask))


class ClusterPrior(Prior):
    """Draws tasks whose classes are mixtures of normal distributions.

    A task has 2 to `num_classes` classes, evenly, of 1 to `max_clusters` clusters each. Clusters
    share a covariance or have their own, differ in some directions only, and lie in the space of
    the columns or on a plane or bent surface of 1 to 8 dimensions. In some tasks tails are heavy,
    columns are cut into unordered categories, or labels are flipped. Other columns are z-scores
    over all rows, clipped to +-100; no cell is missing. `docs/prior.md` lists every distribution.

    Args:
        max_clusters: The most clusters of a class.
    """

    def __init__(self, max_clusters: int = 8) -> None:
        if not 1 <= max_clusters <= MOST_CLUSTERS:
            raise ConfigError(f"max_clusters={max_clusters}: use 1 to {MOST_CLUSTERS}.")
        self.max_clusters = max_clusters

    def sample_tasks(self, shape: TaskShape, generator: torch.Generator) -> Tasks:
        """Draw `shape.batch_size` tasks on the generator's device.

        Raises:
            DataError: If no task can have the shape, or almost no draw has two classes.
        """
        return kept_tasks(partial(self._draw, shape, generator), shape, generator)

    def _draw(
        self, shape: TaskShape, generator: torch.Generator, count: int, rng: np.random.Generator
    ) -> Drawn:
        m, device = shape.num_features, generator.device
        p = draw_parameters(rng, count, m, shape.num_classes, self.max_clusters)
        clusters = draw_clusters(p, m, rng, generator)
        is_heavy = torch.as_tensor(p.is_heavy, device=device)
        z, y = clusters.rows(shape.num_rows, is_heavy, generator)
        x = standardise(_columns(z, clusters, p, generator).view(count * m, -1))
        nominal = rng.uniform(size=(count, m)) < p.nominal_share[:, None]
        columns = torch.as_tensor(np.flatnonzero(nominal), device=device)
        if len(columns):
            sizes = np.exp(rng.uniform(np.log(2), np.log(MOST_CATEGORIES + 1), len(columns)))
            skew = rng.uniform(0, 1, len(columns))
            codes = cut_into_codes(x[columns], sizes.astype(np.int64), skew, generator)
            x.index_copy_(0, columns, codes.to(x.dtype))
        y = flip_classes(y, p.flip_rate, p.num_classes, generator)
        return Drawn(x.view(count, m, -1), y, torch.as_tensor(nominal, device=device))


def _columns(
    z: Float[Tensor, "b m n"], clusters: Clusters, p: Parameters, generator: torch.Generator
) -> Float[Tensor, "b m n"]:
    """Return the numbers themselves, or for surfaces, noisy functions of the used dimensions."""
    b, m, _ = z.shape
    weights, curved = draws.normal(2, b, m, m, generator=generator)
    # Unit vectors of reflections are zero outside the dimensions used.
    is_used = (clusters.first != 0).any(1, keepdim=True)
    weights, curved = (_unit(part, is_used) for part in (weights, curved))
    phase = draws.uniform(b, m, 1, generator=generator) * (2 * np.pi)
    noise = draws.normal(*z.shape, generator=generator)
    bend, blur = (_column(part, z.device).unsqueeze(2) for part in (p.bend, p.blur))
    size = z.square().mean(2, keepdim=True).sqrt() + 1e-6
    surface = weights @ z + bend * torch.sin(curved @ (2 * z / size) + phase)
    deviation = surface.std(2, keepdim=True)
    is_surface = torch.as_tensor(p.is_surface, device=z.device).view(b, 1, 1)
    return torch.where(is_surface, surface + blur * deviation * noise, z)


def _unit(vectors: Tensor, is_used: Tensor) -> Tensor:
    """Set vectors to zero outside the dimensions used and scale them to unit length."""
    vectors = vectors * is_used
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp(min=1e-6)


def _reflected(x: Tensor, v: Tensor, dim: int) -> Tensor:
    """The reflection x - 2 v (v . x), with the products taken along `dim`."""
    return x - 2 * v * (v * x).sum(dim, keepdim=True)


def _column(field: np.ndarray, device: torch.device) -> Float[Tensor, "b 1"]:
    return torch.as_tensor(field, dtype=torch.float32, device=device).unsqueeze(1)

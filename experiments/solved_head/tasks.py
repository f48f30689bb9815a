"""Synthetic tasks, features and loss of the solved head, as it is trained and as it is judged."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from experiments.solved_head.class_statistics import CLASSES, ClassStatistics, folds
from experiments.solved_head.network import LearnedFeatures
from experiments.solved_head.solve import Kind, solve_head
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.data.stream import PriorStream, Stage
from tabicl_linear.embedding.statistics import context_statistics, standardise
from tabicl_linear.estimator.learners.chosen_trees.boosting import grow
from tabicl_linear.priors import (
    ClusterPrior,
    Mixture,
    RelationPrior,
    TabPFNv1Prior,
    TreePrior,
    WithTableEffects,
)
from tabicl_linear.priors.rows import LogUniformRows, RowDistribution
from tabicl_linear.priors.shapes import TaskShapes
from tabicl_linear.ridge_inputs import RidgeOptions, RidgeRegressions
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT, best_confidence, confidence_losses
from tabicl_linear.types import Bool, Float, Int, Tensor

MAX_FEATURES = 24
ROWS = LogUniformRows(128, 512)
LEARNED = 1.0
"""Standard deviation of the learned features, which that of each kind of fixed ones is, too."""
NOTHING, TRIVIAL = 0.02, 0.95
"""Parts of the entropy of labels that are known of rows left out: tasks beyond are left aside."""


def stream(seed: int, stage: Stage, tokens: int, rows: RowDistribution = ROWS) -> PriorStream:
    """Tasks of four priors (configs/prior/wide.yaml)."""
    parts = [TabPFNv1Prior(sharing="dataset"), TreePrior(), ClusterPrior(), RelationPrior()]
    prior = WithTableEffects(
        Mixture(parts),
        irrelevant=0.3,
        redundant=0.15,
        identifiers=0.05,
        imbalanced=0.1,
        distorted=0.2,
        recoded=0.7,
        missing=0.2,
        informative=0.5,
    )
    shapes = TaskShapes(
        batch_size=None,
        tokens_per_batch=tokens,
        columns_per_cell=1,
        num_rows=rows,
        min_context=0.5,
        max_context=0.75,
        max_features=MAX_FEATURES,
        max_classes=CLASSES,
        log_uniform_features=True,
    )
    return PriorStream(prior, shapes, seed=seed, stage=stage)


def in_random_slots(y: Int[Tensor, "b n"], index: int) -> Int[Tensor, "b n"]:
    """Labels whose classes are renamed at random, so that every slot meets every kind of class."""
    generator = torch.Generator().manual_seed(index)
    order = torch.rand(len(y), CLASSES, generator=generator).argsort(1)
    return order.gather(1, y)


def fixed_regressions() -> RidgeRegressions:
    """Random features, the same for all tasks."""
    return RidgeRegressions(RidgeOptions(), num_features=MAX_FEATURES, num_classes=CLASSES)


class Task(NamedTuple):
    """A batch of contexts and queries. The first half of a context grows, the second is solved.

    Attributes:
        z: Standardised rows, context rows first.
        present: Which cells are not missing.
        y: Labels.
        categorical: Columns of category codes.
        fixed: Kinds of fixed features of the solved half and of the queries.
        trees: Leaves of trees grown on the other half, as one kind of features.
        num_growing: Context rows that grow.
        num_context: Context rows.
    """

    z: Float[Tensor, "b n m"]
    present: Bool[Tensor, "b n m"]
    y: Int[Tensor, "b n"]
    categorical: Bool[Tensor, "b m"]
    fixed: list[Kind]
    trees: Kind
    num_growing: int
    num_context: int

    def selected(self, index: Int[Tensor, " k"]) -> "Task":
        """Some tasks of the batch."""
        kinds = [_selected(kind, index) for kind in self.fixed]
        return self._replace(
            z=self.z[index],
            present=self.present[index],
            y=self.y[index],
            categorical=self.categorical[index],
            fixed=kinds,
            trees=_selected(self.trees, index),
        )


def _selected(kind: Kind, index: Tensor) -> Kind:
    return Kind(kind.context[index], kind.queries[index], kind.deviation)


@torch.no_grad()
def prepared(batch: TaskBatch, regressions: RidgeRegressions) -> Task:
    """A batch with what does not depend on the network."""
    x, c = batch.x, batch.num_context
    half = c // 2
    y = in_random_slots(batch.y, batch.index)
    statistics = context_statistics(x[:, :c], y[:, :c], batch.categorical, num_features=None)
    thresholds = regressions.thresholds(x[:, :c], statistics, c)
    features = regressions.of_rows(x, thresholds, statistics)
    fixed = [
        Kind(features[:, half:c, part.place], features[:, c:, part.place], part.deviation)
        for part in regressions.features.sets(x.shape[2])[0]
    ]
    z = standardise(x, statistics).float()
    trees = _trees(z, y, half, c)
    return Task(z, x.isfinite(), y, statistics.categorical, fixed, trees, half, c)


def _trees(z: Float[Tensor, "b n m"], y: Int[Tensor, "b n"], half: int, c: int) -> Kind:
    """One-hot leaves of the solved half and of the queries."""
    one_hot = list[Tensor]()
    for number, (rows, labels) in enumerate(zip(z, y, strict=True)):
        grown = grow(rows[:half], labels[:half], num_classes=CLASSES, seed=number)
        leaves = grown.trees.of_rows(rows[half:]).long()
        one_hot.append(rows.new_zeros(len(leaves), grown.trees.num_leaves).scatter_(1, leaves, 1.0))
    width = max(part.shape[1] for part in one_hot)
    features = torch.stack([F.pad(part, (0, width - part.shape[1])) for part in one_hot])
    return Kind(features[:, : c - half], features[:, c - half :], 1.0)


def learned(network: LearnedFeatures, task: Task) -> Kind:
    """Features of the network, which reads the labels of the half that grows."""
    half, c = task.num_growing, task.num_context
    growing = task.z[:, :half], task.present[:, :half]
    slots = torch.arange(CLASSES).expand(len(task.y), -1)
    fold = folds(len(task.y), half)
    seen = ClassStatistics.empty(*growing, slots).plus(*growing, task.y[:, :half], fold).seen()
    rows = network(task.z[:, half:], task.present[:, half:], task.categorical, seen, None)
    return Kind(rows[:, : c - half], rows[:, c - half :], LEARNED)


class HeadLosses(NamedTuple):
    """How well a head predicts a batch.

    Attributes:
        queries: Log-loss of the queries, mean of each task.
        left_out: Log-loss of each solved row, by the solution from all others.
        confidence: By which predicted shares are multiplied.
    """

    queries: Float[Tensor, " b"]
    left_out: Float[Tensor, "b s"]
    confidence: Float[Tensor, " b"]


def head_losses(kinds: list[Kind], task: Task) -> HeadLosses:
    """Solve the head of each task, at the confidence that suits rows left out."""
    half, c = task.num_growing, task.num_context
    r = F.one_hot(task.y, CLASSES).float()
    solved = r[:, half:c]
    head = solve_head(kinds, solved)
    present = r[:, :c].amax(1, keepdim=True) > 0
    confidence = best_confidence(confidence_losses(head.left_out, solved, present))

    def loss(shares: Tensor, labels: Tensor) -> Tensor:
        logits = (confidence.unsqueeze(-1) * shares).masked_fill(~present, ABSENT_LOGIT)
        return -(logits.log_softmax(-1) * labels).sum(-1)

    of_queries = loss(head.queries, r[:, c:]).mean(1)
    return HeadLosses(of_queries, loss(head.left_out, solved), confidence[:, 0])


class Baseline(NamedTuple):
    """Heads without learned features.

    Attributes:
        closed: Fixed features.
        trees: Fixed features and trees.
    """

    closed: HeadLosses
    trees: HeadLosses

    @classmethod
    @torch.no_grad()
    def of(cls, task: Task) -> "Baseline":
        """Solve both."""
        with_trees = [*task.fixed, task.trees]
        return cls(head_losses(task.fixed, task), head_losses(with_trees, task))


class Selection(NamedTuple):
    """Which tasks of a batch are trained on, by what rows left out are told without a network.

    Attributes:
        is_nothing: Neither head tells `NOTHING` of the entropy of the labels.
        is_trivial: The closed form tells `TRIVIAL` of it.
    """

    is_nothing: Bool[Tensor, " b"]
    is_trivial: Bool[Tensor, " b"]

    @classmethod
    def of(cls, task: Task, baseline: Baseline) -> "Selection":
        """Compare with the entropy of the solved half."""
        labels = task.y[:, task.num_growing : task.num_context]
        shares = F.one_hot(labels, CLASSES).float().mean(1)
        entropy = torch.special.entr(shares).sum(1).clamp(min=1e-3)
        closed, trees = (1 - part.left_out.mean(1) / entropy for part in baseline)
        return cls(torch.maximum(closed, trees) < NOTHING, closed > TRIVIAL)

    @property
    def indices(self) -> Int[Tensor, " k"]:
        """Indices of the tasks that are trained on."""
        return (~self.is_nothing & ~self.is_trivial).nonzero().squeeze(1)

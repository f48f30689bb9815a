"""Synthetic tasks, features and loss of the solved head, as it is trained and as it is judged."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.data.stream import PriorStream, Stage
from tabicl_linear.embedding.statistics import ContextStatistics, context_statistics, standardise
from tabicl_linear.priors import Mixture, TabPFNv1Prior, TreePrior, WithTableEffects
from tabicl_linear.priors.rows import LogUniformRows
from tabicl_linear.priors.shapes import TaskShapes
from tabicl_linear.ridge_inputs import RidgeOptions, RidgeRegressions
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT, best_confidence, confidence_losses
from tabicl_linear.solved_head.class_statistics import CLASSES, ClassStatistics, folds
from tabicl_linear.solved_head.network import LearnedFeatures
from tabicl_linear.solved_head.solve import Kind, solve_head
from tabicl_linear.types import Bool, Float, Int, Tensor

MAX_FEATURES = 32
LEARNED = 2.0
"""Standard deviation of the learned features, where each of four kinds of fixed ones has one."""


def stream(seed: int, stage: Stage, tokens: int) -> PriorStream:
    """Tasks of the prior of the default weights (configs/prior/mixture.yaml)."""
    mixture = Mixture([TabPFNv1Prior(sharing="dataset"), TreePrior(max_categories=256)], [0.5, 0.5])
    prior = WithTableEffects(
        mixture,
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
        num_rows=LogUniformRows(96, 1024),
        min_context=0.4,
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
    """A batch of contexts and queries with their fixed features.

    Attributes:
        z: Standardised rows, context rows first.
        present: Which cells are not missing.
        y: Labels.
        statistics: Of the context.
        fixed: Kinds of fixed features.
        num_context: Context rows.
    """

    z: Float[Tensor, "b n m"]
    present: Bool[Tensor, "b n m"]
    y: Int[Tensor, "b n"]
    statistics: ContextStatistics
    fixed: list[Kind]
    num_context: int


@torch.no_grad()
def prepared(batch: TaskBatch, regressions: RidgeRegressions) -> Task:
    """A batch with what does not depend on the network."""
    x, c = batch.x, batch.num_context
    y = in_random_slots(batch.y, batch.index)
    statistics = context_statistics(x[:, :c], y[:, :c], batch.categorical, num_features=None)
    thresholds = regressions.thresholds(x[:, :c], statistics, c)
    features = regressions.of_rows(x, thresholds, statistics)
    kinds = [
        Kind(features[:, :c, part.place], features[:, c:, part.place], part.deviation)
        for part in regressions.features.sets(x.shape[2])[0]
    ]
    return Task(standardise(x, statistics).float(), x.isfinite(), y, statistics, kinds, c)


def learned(network: LearnedFeatures, task: Task) -> Kind:
    """Features of the network: context rows read the folds that they are not in."""
    c, categorical = task.num_context, task.statistics.categorical
    context, queries = (task.z[:, :c], task.present[:, :c]), (task.z[:, c:], task.present[:, c:])
    slots = torch.arange(CLASSES).expand(len(task.y), -1)
    fold = folds(len(task.y), c)
    statistics = ClassStatistics.empty(*context, slots).plus(*context, task.y[:, :c], fold)
    seen = statistics.seen()
    return Kind(
        network(*context, categorical, seen, fold),
        network(*queries, categorical, seen, None),
        LEARNED,
    )


def losses(kinds: list[Kind], task: Task) -> Float[Tensor, " b"]:
    """Mean log-loss of the queries of each task, at the confidence that suits rows left out."""
    c = task.num_context
    r = F.one_hot(task.y, CLASSES).float()
    head = solve_head(kinds, r[:, :c])
    present = r[:, :c].amax(1, keepdim=True) > 0
    confidence = best_confidence(confidence_losses(head.left_out, r[:, :c], present))
    logits = (confidence.unsqueeze(-1) * head.queries).masked_fill(~present, ABSENT_LOGIT)
    return -(logits.log_softmax(-1) * r[:, c:]).sum(-1).mean(1)

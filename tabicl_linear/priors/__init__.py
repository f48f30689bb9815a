"""Distributions over synthetic tables."""

from tabicl_linear.priors.base import Prior, Tasks, TaskShape
from tabicl_linear.priors.clusters import ClusterPrior
from tabicl_linear.priors.effects import WithTableEffects
from tabicl_linear.priors.gaussian_uniform import GaussianUniformPrior
from tabicl_linear.priors.mixture import Mixture
from tabicl_linear.priors.relations import RelationPrior
from tabicl_linear.priors.tabpfn_v1 import TabPFNv1Prior
from tabicl_linear.priors.trees import TreePrior

__all__ = [
    "ClusterPrior",
    "GaussianUniformPrior",
    "Mixture",
    "Prior",
    "RelationPrior",
    "TabPFNv1Prior",
    "TaskShape",
    "Tasks",
    "TreePrior",
    "WithTableEffects",
]

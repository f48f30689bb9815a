"""Distributions over synthetic tables."""

from tabicl_linear.priors.base import Prior, Tasks, TaskShape
from tabicl_linear.priors.gaussian_uniform import GaussianUniformPrior
from tabicl_linear.priors.tabpfn_v1 import TabPFNv1Prior

__all__ = ["GaussianUniformPrior", "Prior", "TabPFNv1Prior", "TaskShape", "Tasks"]

"""A prior of tree-structured functions on columns of mixed kinds."""

from tabicl_linear.priors.trees.prior import TreePrior

__all__ = ["TreePrior"]

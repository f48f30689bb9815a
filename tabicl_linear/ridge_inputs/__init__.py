"""Ridge regressions, solved in closed form on the context, as inputs of a network."""

from tabicl_linear.ridge_inputs.inputs import (
    RidgeContext,
    RidgeInputs,
    RidgeRegressions,
    RidgeState,
)
from tabicl_linear.ridge_inputs.options import RidgeOptions
from tabicl_linear.ridge_inputs.predictions import RidgePredictions

__all__ = [
    "RidgeContext",
    "RidgeInputs",
    "RidgeOptions",
    "RidgePredictions",
    "RidgeRegressions",
    "RidgeState",
]

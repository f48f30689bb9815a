"""The baselines of the development tables, by name: estimators that take raw frames.

The closed form alone encodes tables as our models do.
"""

from collections.abc import Callable

from sklearn.base import ClassifierMixin

from tabicl_linear.evaluation import baselines

NAMES = (
    "logistic_regression",
    "random_forest",
    "hist_gradient_boosting",
    "random_feature_ridge",
    "catboost",
)
BASELINES: dict[str, Callable[[], ClassifierMixin]] = {
    name: baselines.BASELINES[name].make for name in NAMES
}

"""Linear-time in-context learners for tables.

Public names are imported on first use, so that `import tabicl_linear` is fast.
"""

from importlib import import_module
from typing import Any

from tabicl_linear._version import __version__

_HOMES = {
    "RandomFeatureRidge": "tabicl_linear.estimator.random_feature_ridge",
    "TabICLLinearClassifier": "tabicl_linear.estimator.classifier",
    "build_task": "tabicl_linear.config",
    "dask_predict_proba": "tabicl_linear.estimator.partitions",
    "load_model": "tabicl_linear.checkpoint",
}
__all__ = [
    "RandomFeatureRidge",
    "TabICLLinearClassifier",
    "__version__",
    "build_task",
    "dask_predict_proba",
    "load_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

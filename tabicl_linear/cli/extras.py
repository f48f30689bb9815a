"""Optional dependencies (the extras of `pyproject.toml`), and what says which one is missing."""

import importlib.util

from tabicl_linear.errors import ConfigError

TRAIN = "train"
BENCHMARKS = "benchmarks"
DASK = "dask"
EXTRAS = {
    TRAIN: ("lightning", "jsonargparse", "torchmetrics", "tensorboard", "matplotlib", "jinja2"),
    BENCHMARKS: ("openml", "matplotlib", "jinja2", "scikit_posthocs"),
    DASK: ("dask", "distributed"),
}
"""Packages of each extra, by the names under which they are imported."""


def require(extra: str, verb: str) -> None:
    """Raise `ConfigError` if packages of an extra that a verb needs are missing; import none."""
    missing = [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"`{verb}` needs {' and '.join(missing)}: pip install 'tabicl-linear[{extra}]'."
        )

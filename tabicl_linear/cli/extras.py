"""Optional dependencies (the extras of `pyproject.toml`), and the error if one is missing."""

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
    """Raise `ConfigError` if a package of the extra that `verb` needs is not installed.

    Nothing is imported.
    """
    missing = [name for name in EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"`{verb}` needs {' and '.join(missing)}: pip install 'tabicl-linear[{extra}]'."
        )

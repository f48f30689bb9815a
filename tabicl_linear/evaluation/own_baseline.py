"""A baseline of the user's own: a scikit-learn classifier by its import path."""

from functools import partial
from importlib import import_module, metadata
from pathlib import Path

from sklearn.base import ClassifierMixin, clone

from tabicl_linear.errors import ConfigError
from tabicl_linear.evaluation.baselines import Baseline, distributions
from tabicl_linear.files import checksum


def own_baseline(path: str) -> Baseline:
    """The baseline that `module.Class` makes without arguments; it reads categories.

    The module is imported only when the classifier is made. If the classifier has a parameter
    `n_jobs`, it is set to the number of threads.
    """
    return Baseline(partial(_make, path), _package(path), reads_categories=True)


def identity(path: str) -> str:
    """What a baseline's results depend on: its library's version, or the checksum of its file.

    Raises:
        ConfigError: There is no such class, or it is not a classifier with probabilities.
    """
    _make(path)
    package = _package(path)
    if package in distributions():
        return f"{package} {metadata.version(distributions()[package][0])}"
    file = import_module(path.rpartition(".")[0]).__file__
    assert file is not None, "a module that holds a class has a file"
    return f"{package} {checksum(Path(file))}"


def _package(path: str) -> str:
    return path.partition(".")[0]


def _make(path: str, threads: int | None = None) -> ClassifierMixin:
    module, _, name = path.rpartition(".")
    try:
        # Trials fit clones and score probabilities: both are checked here.
        classifier = clone(getattr(import_module(module), name)())
        is_told = callable(classifier.predict_proba) and "n_jobs" in classifier.get_params()
    except (ImportError, SyntaxError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"--baseline {path}: {str(error).rstrip('.')}; give module.Class of a scikit-learn "
            "classifier with predict_proba that is made without arguments, in a module that Python "
            "finds (PYTHONPATH=FOLDER)."
        ) from error
    return classifier.set_params(n_jobs=threads) if is_told else classifier

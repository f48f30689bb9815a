"""What all classifiers of tables share, independently of the learner that reads the context."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator import state_file
from tabicl_linear.estimator.ensemble import FittedEnsemble, fit_ensemble
from tabicl_linear.estimator.labels import checked_labels, one_line
from tabicl_linear.estimator.learner import ContextLearner
from tabicl_linear.estimator.preprocessing import CategoricalFeatures, Table, TablePreprocessor


class EnsembleClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Encodes a table and lets a learner read it once for each member of an ensemble.

    Subclasses take the arguments below, among others, and make the learner. For arguments and
    fitted attributes see `TabICLLinearClassifier`.
    """

    n_estimators: int
    softmax_temperature: float
    categorical_features: CategoricalFeatures
    device: str | torch.device | None
    random_state: Any
    n_jobs: int | None
    rows_per_batch: int
    verbose: int
    classes_: npt.NDArray[Any]
    preprocessor_: TablePreprocessor
    ensemble_: FittedEnsemble[Any]
    state_bytes_: int
    n_samples_seen_: int

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Read the training table into the learner's states.

        A call that fails leaves the classifier as it was.

        Args:
            X: Table `[rows, columns]`: array, frame or nested list; may hold missing values.
            y: Class labels of the rows.

        Raises:
            DataError: The table or the labels cannot be used: only one class, more classes than
                the learner takes, missing labels, or columns that cannot be read.
            ConfigError: A constructor argument is out of range.
            CheckpointError: The model cannot be loaded.
        """
        self._check_arguments()
        with self._kept_on_errors():
            self._fit(X, y)
        return self

    @contextmanager
    def _kept_on_errors(self) -> Iterator[None]:
        """Leave the classifier as it was if something fails."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Any, y: Any) -> None:
        table = self._validated(X, y, reset=True)
        labels = checked_labels(y)
        check_consistent_length(table, labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                f"y holds one class only ({classes.tolist()[0]!r}): give training rows of at least "
                "two."
            )
        learner = self._make_learner(len(classes), len(labels)).to(self._resolved_device())
        preprocessor = TablePreprocessor(self.categorical_features).fit(table)
        self._read(learner, preprocessor, preprocessor.transform(table), codes)
        self.classes_ = classes

    def _read(
        self,
        learner: ContextLearner[Any],
        preprocessor: TablePreprocessor,
        matrix: npt.NDArray[np.float32],
        codes: npt.NDArray[np.int64],
        **options: Any,
    ) -> None:
        """Fit the members; `options` as in `fit_ensemble`."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with threads(self.n_jobs):
            self.ensemble_ = fit_ensemble(
                learner,
                matrix,
                codes,
                categorical=preprocessor.categorical,
                num_members=self.n_estimators,
                seed=seed,
                rows_per_batch=self.rows_per_batch,
                progress=self.verbose > 0,
                **options,
            )
        self.preprocessor_ = preprocessor
        self.state_bytes_ = self.ensemble_.state_bytes
        self.n_samples_seen_ = len(codes)
        self.__dict__.pop("prequential_", None)  # of an earlier fit

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Class probabilities `[rows, classes]`, in the order of `classes_`.

        A row's probabilities do not depend on the other rows (up to rounding).

        Raises:
            DataError: The columns are not those of the training table.
        """
        check_is_fitted(self, "ensemble_")
        self._check_arguments()
        table = self._validated(X, reset=False)
        with threads(self.n_jobs):
            logits = self.ensemble_.logits(
                self.preprocessor_.transform(table),
                device=self._resolved_device(),
                rows_per_batch=self.rows_per_batch,
                progress=self.verbose > 0,
            )
        probabilities: npt.NDArray[np.float64] = softmax(logits / self.softmax_temperature, axis=1)
        return probabilities

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class label of each row.

        Raises:
            DataError: The columns are not those of the training table.
        """
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    @property
    def state_nbytes_(self) -> int:
        """Bytes of the fitted states of all members."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.nbytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier to one file, from which `load` makes it again.

        It holds the states and what was learnt about columns and classes, and no training row. Its
        size does not depend on the number of rows (except with softmax attention). A model is named
        and identified, but not stored. See docs/growing.md.

        Raises:
            NotFittedError: The classifier has not been fitted.
            DataError: The file cannot be written, or an argument of the constructor cannot be
                stored.
        """
        check_is_fitted(self, "ensemble_")
        state_file.write(self, Path(path))

    @classmethod
    def _restored(cls, content: state_file.Content, **arguments: Any) -> Self:
        """A classifier as a file describes it, with some arguments of the constructor replaced."""
        classifier = cls(**{**content.parameters, **arguments})
        classifier.__dict__.update(content.fitted)
        return classifier

    @abstractmethod
    def _make_learner(self, num_classes: int, num_rows: int) -> ContextLearner[Any]:
        """The learner for a training table of this size.

        Raises:
            DataError: The learner takes fewer classes.
            ConfigError: A constructor argument is out of range.
            CheckpointError: The learner's weights cannot be loaded.
        """

    def __getstate__(self) -> dict[str, Any]:
        # A classifier fitted on a GPU must load on a machine without one.
        state = dict(super().__getstate__())
        if "ensemble_" in state:
            state["ensemble_"] = state["ensemble_"].on("cpu")
        return state

    def _check_arguments(self) -> None:
        self._check_counts("n_estimators", "rows_per_batch")
        temperature = self.softmax_temperature
        if not isinstance(temperature, Real) or not 0 < temperature < np.inf:
            raise ConfigError(f"softmax_temperature={temperature!r}: give a positive number.")
        if self.n_jobs is not None and (not _is_integer(self.n_jobs) or self.n_jobs == 0):
            raise ConfigError(
                f"n_jobs={self.n_jobs!r}: give a number of threads, -1 for all, or None."
            )

    def _check_counts(self, *names: str) -> None:
        """Refuse arguments that are not positive integers."""
        for name in names:
            value = getattr(self, name)
            if not _is_integer(value) or value < 1:
                raise ConfigError(f"{name}={value!r}: give a positive integer.")

    def _resolved_device(self) -> torch.device:
        return resolved_device(self.device)

    def _validated(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Table:
        """The checked table; sets (or compares) the number and names of its columns."""
        if isinstance(X, pd.DataFrame):
            table = X if reset else self.preprocessor_.align(X)
            if len(table) == 0:
                raise DataError("The table has 0 rows; give at least one.")
            validate_data(self, table, y, reset=reset, skip_check_array=True)
            return table
        try:
            array = check_array(
                X, dtype=None, ensure_all_finite=False, estimator=self, input_name="X"
            )
        except ValueError as error:
            raise DataError(one_line(error)) from error
        validate_data(self, X, y, reset=reset, skip_check_array=True)
        return array


def resolved_device(given: str | torch.device | None) -> torch.device:
    """The device that an argument names; by default CUDA where it is available.

    Raises:
        ConfigError: It is no device, or not one of this machine.
    """
    if given is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"device={given!r} is not a torch device; give 'cpu', 'cuda' or 'cuda:INDEX'."
        ) from error
    if device.type not in ("cpu", "cuda"):
        # Column statistics are float64, which MPS, for example, does not support.
        raise ConfigError(
            f"device={str(device)!r} is not supported; give 'cpu', 'cuda' or 'cuda:INDEX'."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={str(device)!r}, but torch sees {torch.cuda.device_count()} CUDA devices; "
            "give another device, or 'cpu'."
        )
    return device


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Set torch's CPU threads, and restore them afterwards."""
    if n_jobs is None:
        yield
        return
    before = torch.get_num_threads()
    cores = os.cpu_count() or 1
    torch.set_num_threads(n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)

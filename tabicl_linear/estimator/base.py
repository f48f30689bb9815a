"""What all classifiers of tables share, independently of the learner that reads the context."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arguments import refuse, threads
from tabicl_linear.estimator.class_weights import class_weights
from tabicl_linear.estimator.ensemble import FittedEnsemble
from tabicl_linear.estimator.frames import computable, computable_array, from_other_library
from tabicl_linear.estimator.labels import checked_labels, one_line
from tabicl_linear.estimator.learner import ContextLearner
from tabicl_linear.estimator.pooling import pooled
from tabicl_linear.estimator.preprocessing import Table, TablePreprocessor
from tabicl_linear.estimator.reading import ReadTables
from tabicl_linear.estimator.saved import SavedEnsemble


class EnsembleClassifier(ClassifierMixin, SavedEnsemble, ReadTables, ABC):
    """Encodes a table and lets a learner read it once for each member of an ensemble.

    Subclasses take the arguments below, among others, and make the learner. For arguments and
    fitted attributes see `TabICLLinearClassifier`.
    """

    classes_: npt.NDArray[Any]
    class_count_: npt.NDArray[np.int64]
    temperature_: float
    preprocessor_: TablePreprocessor
    state_bytes_: int
    n_samples_seen_: int

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any, **unsupported: Any) -> Self:
        """Read the training table into the learner's states.

        A call that fails leaves the classifier as it was.

        Args:
            X: Table `[rows, columns]`: array, frame of pandas, polars or Arrow, or nested list; may
                hold missing values.
            y: Class labels of the rows.
            **unsupported: None; `sample_weight` is refused with the reason.

        Raises:
            TypeError: Another argument was given.
            DataError: The table or the labels cannot be used: only one class, more classes than
                the learner takes, missing labels, or columns that cannot be read.
            ConfigError: A constructor argument is out of range.
            CheckpointError: The model cannot be loaded.
        """
        refuse(unsupported)
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
        labels = checked_labels(from_other_library(y))
        check_consistent_length(table, labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                f"y holds one class only ({classes.tolist()[0]!r}): give training rows of at least "
                "two."
            )
        learner = self._make_learner(len(classes)).to(self._resolved_device())
        seed = self._seed()
        class_weights(self.class_weight, classes, np.bincount(codes))
        with threads(self.n_jobs):
            learner = self._suited(learner, codes, table, seed)
            temperature = self._temperature(learner, table, codes, seed)
            preprocessor, ensemble = self._read(learner, table, codes, seed)
        self._set_fitted(preprocessor, ensemble, classes, codes, temperature)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _set_fitted(
        self,
        preprocessor: TablePreprocessor,
        ensemble: FittedEnsemble[Any],
        classes: npt.NDArray[Any],
        codes: npt.NDArray[np.int64],
        temperature: float,
    ) -> None:
        """Set the fitted attributes."""
        self.preprocessor_, self.ensemble_ = preprocessor, ensemble
        self.classes_, self.temperature_ = classes, temperature
        self.class_count_ = np.bincount(codes, minlength=len(classes))
        self.state_bytes_ = ensemble.state_bytes
        self.n_samples_seen_ = len(codes)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Class probabilities `[rows, classes]`, in the order of `classes_`.

        A row's probabilities do not depend on the other rows (up to rounding).

        Raises:
            DataError: The columns are not those of the training table, or memory ran out.
        """
        probabilities: npt.NDArray[np.float64] = softmax(self._scores(X), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Logarithms of `predict_proba`; finite also where a probability rounds to 0.

        Raises:
            DataError: The columns are not those of the training table, or memory ran out.
        """
        logarithms: npt.NDArray[np.float64] = log_softmax(self._scores(X), axis=1)
        return logarithms

    def _scores(self, X: Any) -> npt.NDArray[np.float64]:
        """Logarithms of the probabilities `[rows, classes]`, up to a constant for each row."""
        check_is_fitted(self, "ensemble_")
        self._check_arguments()
        weights = class_weights(self.class_weight, self.classes_, self.class_count_)
        table = self._validated(X, reset=False)
        is_auto = self.softmax_temperature == "auto"
        pool = partial(
            pooled,
            temperature=self.temperature_ if is_auto else self._preset.softmax_temperature,
            average_logits=self.average_logits,
        )
        with threads(self.n_jobs):
            scores = self._pooled(self.ensemble_, self.preprocessor_.transform(table), pool)
        return scores + np.log(weights)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class label of each row.

        Raises:
            DataError: The columns are not those of the training table.
        """
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def _suited(
        self,
        learner: ContextLearner[Any],
        codes: npt.NDArray[np.int64],
        table: Table | None,
        seed: int,
    ) -> ContextLearner[Any]:
        """The learner, or one made of it that suits the training rows better.

        Args:
            learner: From `_make_learner`.
            codes: Class index of each row.
            table: The rows; None where they come in pieces.
            seed: Of the ensemble.
        """
        return learner

    @abstractmethod
    def _make_learner(self, num_classes: int) -> ContextLearner[Any]:
        """The learner for a training table of so many classes.

        Raises:
            DataError: The learner takes fewer classes.
            ConfigError: A constructor argument is out of range.
            CheckpointError: The learner's weights cannot be loaded.
        """

    def _validated(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Table:
        """The checked table; sets (or compares) the number and names of its columns."""
        X = from_other_library(X)
        if isinstance(X, pd.DataFrame):
            table = computable(X)
            if not reset:
                table = self.preprocessor_.align(table)
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
        return computable_array(array)

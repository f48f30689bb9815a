"""The scikit-learn interface that the classifiers share, around one fitted value."""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data
from tqdm import tqdm

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator import fitting
from tabicl_linear.estimator.arrays import FloatArray
from tabicl_linear.estimator.columns.preprocessor import Table
from tabicl_linear.estimator.devices import computing, resolved_device
from tabicl_linear.estimator.files import state_file
from tabicl_linear.estimator.fitted import Fitted
from tabicl_linear.estimator.learners.interface import Learners
from tabicl_linear.estimator.notices import progress_bar
from tabicl_linear.estimator.plan import OF_LEARNERS, OF_MEMBERS, Plan, checked_plan
from tabicl_linear.estimator.rows.labelled import checked_rows, checked_table
from tabicl_linear.estimator.rows.labels import checked_labels
from tabicl_linear.estimator.rows.pieces import Pieces, checked_pieces, rows_of_file
from tabicl_linear.model import InContextModel


def fitted_of(classifier: "EnsembleClassifier", name: str) -> Fitted:
    """The fitted value, for the attribute `name` of the classifier.

    Raises:
        NotFittedError: Nothing was fitted. It is an AttributeError too, so `hasattr` is False.
    """
    if not classifier.__sklearn_is_fitted__():
        raise NotFittedError(
            f"This {type(classifier).__name__} has no attribute {name!r} yet: it is not fitted. "
            "Call fit first."
        )
    return classifier.fitted_


def fitted_part(name: str, part: str) -> property:
    """An attribute `name` of a classifier, which shows a part of `fitted_`."""
    return property(lambda classifier: attrgetter(part)(fitted_of(classifier, name)))


class EnsembleClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Base of classifiers whose arguments make a `Plan` and whose fit is one value, `fitted_`.

    Subclasses define the arguments and make the learners. `TabICLLinearClassifier` describes the
    arguments and the fitted attributes, which are parts of that value.
    """

    fitted_: Fitted
    _arguments_of_fit: dict[str, Any]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "fitted_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        # A classifier fitted on a GPU must load on a machine without one.
        state = dict(super().__getstate__())
        if "fitted_" in state:
            state["fitted_"] = state["fitted_"].on(torch.device("cpu"))
        return state

    classes_ = fitted_part("classes_", "classes")
    class_count_ = fitted_part("class_count_", "counts")
    temperature_ = fitted_part("temperature_", "temperature")
    preprocessor_ = fitted_part("preprocessor_", "columns")
    ensemble_ = fitted_part("ensemble_", "members")
    n_features_in_ = fitted_part("n_features_in_", "columns.width")
    n_samples_seen_ = fitted_part("n_samples_seen_", "num_rows")
    state_bytes_ = fitted_part("state_bytes_", "members.state_bytes")
    state_nbytes_ = fitted_part("state_nbytes_", "nbytes")

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Column names of the training table, if it had names and all of them are strings."""
        names = fitted_of(self, "feature_names_in_").columns.names
        if names is None or not all(isinstance(name, str) for name in names):
            raise AttributeError("The training table had no names of columns that are text.")
        return np.asarray(names, dtype=object)

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Read the training table into the learner's states.

        A call that fails leaves the classifier as it was.

        A table larger than memory may be given as an iterator of pieces or as a file. The columns
        are then learnt from the first 50,000 rows (docs/growing.md), and memory does not grow with
        the number of rows. Trees and causal models read each piece once and let it go. Other models
        need all rows at once: during the fit, temporary files (in TMPDIR) hold the encoded table
        and what the model computes from it.

        Args:
            X: Table `[rows, columns]`: array, frame of pandas, polars or Arrow, or nested list; may
                hold missing values. Or an iterator of pairs (X, y) of such pieces, or the path of a
                CSV, TSV (also compressed) or Parquet file.
            y: Class labels of the rows; for a file the name of the column that holds them; left
                out for an iterator.
            **unsupported: Nothing else is supported; `sample_weight` is refused with the reason.

        Raises:
            TypeError: Another argument was given.
            DataError: The table or the labels cannot be used: only one class, more classes than
                the learner takes, missing labels, columns that cannot be read, or pieces whose
                columns are not those of the first.
            ConfigError: A constructor argument is out of range.
            CheckpointError: The model cannot be loaded.
        """
        _refuse(unsupported)
        plan = self._plan()
        if isinstance(X, str | os.PathLike):
            pieces, classes, num_rows = rows_of_file(Path(X), y)
        elif isinstance(X, Iterator):
            if y is not None:
                raise DataError("An iterator gives pairs (X, y) of pieces: leave y out.")
            pieces, classes, num_rows = checked_pieces(X), None, None
        else:
            with computing(plan.n_jobs):
                return self._keep(fitting.fit(checked_rows(X, y), plan, self._learners()))
        with computing(plan.n_jobs), progress_bar("read", num_rows, plan.progress) as bar:
            pieces = _with_progress(pieces, bar)
            return self._keep(fitting.fit_pieces(pieces, plan, self._learners(), classes))

    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities `[rows, classes]`, in the order of `classes_`.

        A row's probabilities do not depend on the other rows (up to rounding).

        Raises:
            DataError: The columns are not those of the training table, or memory ran out.
        """
        return np.asarray(softmax(self._scored(X)[1], axis=1))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Logarithms of `predict_proba`; finite also where a probability rounds to 0.

        Raises:
            DataError: The columns are not those of the training table, or memory ran out.
        """
        return np.asarray(log_softmax(self._scored(X)[1], axis=1))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class label of each row.

        Raises:
            DataError: The columns are not those of the training table.
        """
        classes, scores = self._scored(X)
        # Not of scores, which may tell classes apart that are equally probable: the first counts.
        return classes[softmax(scores, axis=1).argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on labelled rows; the labels may have any form that `fit` takes.

        Raises:
            DataError: The rows or the labels cannot be used.
        """
        with warnings.catch_warnings():
            # In a few rows to score, most labels may well differ; scikit-learn warns of that.
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            labels = checked_labels(y)
        return float(super().score(X, labels, sample_weight))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier to one file that `load` reads.

        The file holds the states and what was learnt about columns and classes. It holds no
        training rows, unless rows can be added to the states: then it also holds the labels of the
        last 1,024 rows or, with trees, some rows. Its size does not depend on the number of rows
        (except with softmax attention). It names and identifies the model, but does not store it.
        See docs/growing.md.

        Raises:
            NotFittedError: The classifier has not been fitted.
            DataError: The file cannot be written, or an argument of the constructor cannot be
                stored.
        """
        check_is_fitted(self)
        arguments = self._fitted_arguments()
        with computing(arguments["n_jobs"]):
            fitted = self.fitted_.solved()
        state_file.write(type(self).__name__, arguments, fitted, Path(path))

    @classmethod
    def _read(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str | torch.device | None,
        model: str | os.PathLike[str] | InContextModel | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """A fitted classifier from a file; see `state_file.read`."""
        with computing(n_jobs=None):
            parameters, fitted = state_file.read(
                Path(path), cls.__name__, model, device=resolved_device(device), dtype=dtype
            )
        overrides = {"device": device} if model is None else {"device": device, "model": model}
        classifier = cls(**(parameters | overrides))
        return classifier._keep(fitted)

    def _keep(self, fitted: Fitted) -> Self:
        """Take a fitted value, with the arguments that it was made with."""
        # In this order, since another thread may predict as soon as there is a fitted value.
        self._arguments_of_fit, self.fitted_ = self.get_params(deep=False), fitted
        return self

    def _plan(self) -> Plan:
        return checked_plan(self.get_params(deep=False))

    def _fitted_arguments(self) -> dict[str, Any]:
        """The arguments; those that hold from the next `fit` on, as they were at the last one."""
        arguments = self.get_params(deep=False)
        return arguments | {
            name: value
            for name, value in self._arguments_of_fit.items()
            if name in (*OF_LEARNERS, *OF_MEMBERS)
        }

    @abstractmethod
    def _learners(self) -> Learners:
        """Make the learners that the arguments ask for.

        Raises:
            ConfigError: A constructor argument is out of range.
            CheckpointError: The weights cannot be loaded.
        """

    def _scored(self, X: Any) -> tuple[npt.NDArray[Any], FloatArray]:
        """The class labels `[classes]` and the `Fitted.scores` of rows `[rows, classes]`.

        Both come from the same fit, even if another thread fits the classifier again meanwhile.
        """
        check_is_fitted(self)
        plan, fitted = checked_plan(self._fitted_arguments()), self.fitted_
        with computing(plan.n_jobs):
            return fitted.classes, fitted.scores(self._queries(X), plan)

    def _queries(self, X: Any) -> Table:
        """The checked table, with its columns in the order of the training table."""
        table = self.fitted_.columns.align(checked_table(X))
        validate_data(self, table, reset=False, skip_check_array=True)
        return table


def _refuse(unsupported: dict[str, Any]) -> None:
    """Raise for arguments that `fit` does not support, with the reason."""
    for name, value in unsupported.items():
        if name != "sample_weight":
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        if value is not None:
            raise ConfigError(
                "sample_weight is not supported: the learner reads every row once and was not "
                "pretrained with weights. Keep each row with a probability in proportion to its "
                "weight, at most once (copies of rows would make it too certain), or set "
                "class_weight."
            )


def _with_progress(pieces: Pieces, bar: tqdm) -> Pieces:
    """The pieces; the bar counts the rows of each once it has been used."""
    for rows in pieces:
        yield rows
        bar.update(len(rows.labels))

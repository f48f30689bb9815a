"""Classifiers that read a table piece by piece: `partial_fit`, and scores before each piece."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_consistent_length

from tabicl_linear.errors import CheckpointError, DataError, UnsupportedReadout
from tabicl_linear.estimator.arguments import threads
from tabicl_linear.estimator.class_weights import class_weights
from tabicl_linear.estimator.ensemble import (
    FittedEnsemble,
    as_seen,
    progress_bar,
    rows_at_a_time,
)
from tabicl_linear.estimator.frames import from_other_library
from tabicl_linear.estimator.labels import checked_labels, class_codes
from tabicl_linear.estimator.learner import ContextLearner
from tabicl_linear.estimator.memory import retried_smaller
from tabicl_linear.estimator.pieces import Pieces
from tabicl_linear.estimator.preprocessing import TablePreprocessor
from tabicl_linear.estimator.streamed import StreamedClassifier, first_rows
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.model import InContextModel

NO_SCORES = pd.DataFrame(
    {"rows_seen": [0], "rows": [0], "log_loss": [0.0], "accuracy": [0.0]}
).iloc[:0]
"""What `prequential_` is before a piece has been scored."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _IfExtensible(Generic[_P, _R]):
    """A method that only classifiers have whose model can be extended, as scikit-learn expects.

    `hasattr` is false for the others, and the error of using the method says what they lack.
    """

    def __init__(self, method: Callable[Concatenate[Any, _P], _R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, instance: "GrowingClassifier | None", owner: type) -> Callable[_P, _R]:
        if instance is None:
            unbound: Any = self._method
            return cast(Callable[_P, _R], unbound)
        try:
            instance._check_extensible()
        except UnsupportedReadout as error:
            raise AttributeError(
                f"This {owner.__name__} has no partial_fit: {error} Weights that ship and have it: "
                "model='streaming'."
            ) from error
        method: Callable[_P, _R] = self._method.__get__(instance)
        return method


class GrowingClassifier(StreamedClassifier):
    """Adds `partial_fit` to the classifier of a model.

    Attributes:
        prequential_: One row for each piece that was scored before it was read: `rows_seen` before
            it, `rows` in it, `log_loss` and `accuracy` on it. No rows where nothing was scored.
    """

    prequential_: pd.DataFrame

    @_IfExtensible
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, *, prequential: bool = False
    ) -> Self:
        """Read more rows into the states.

        Pieces give the states of the whole, if the whole is read in their order and with what the
        first piece taught: how columns are encoded and scaled, and which are dropped because they
        do not vary. So let the first piece be large enough to show the columns. Only models that
        read causally have this method. See docs/growing.md.

        A call that fails leaves the classifier as it was.

        Args:
            X: Rows; the first call, or `fit`, decides what their columns are.
            y: Their labels.
            classes: All classes that will ever occur, at the first call; later ones may repeat
                them. Left out: those of the first piece.
            prequential: Predict the piece before reading it, and add a row to `prequential_`. The
                first piece is only read.

        Raises:
            AttributeError: The model cannot be extended; the message says which can.
            DataError: The rows cannot be used (see `fit`), or a label is not one of the classes.
            ConfigError: A constructor argument is out of range.
            CheckpointError: The model cannot be loaded.
        """
        self._check_arguments()
        with self._kept_on_errors():
            if self.__sklearn_is_fitted__():
                self._continue(X, y, classes, prequential=prequential)
            else:
                self._start(X, y, classes)
        return self

    def _set_fitted(
        self, preprocessor: TablePreprocessor, ensemble: FittedEnsemble[Any], *fitted: Any
    ) -> None:
        # States that no row will be added to are only read from here on.
        grows = isinstance(ensemble.model, InContextModel) and ensemble.model.is_causal
        super()._set_fitted(preprocessor, ensemble if grows else ensemble.halved(), *fitted)
        self.prequential_ = NO_SCORES.copy()

    def _fit_pieces(self, pieces: Pieces, classes: npt.NDArray[Any] | None) -> None:
        if not self._load_model().is_causal:
            super()._fit_pieces(pieces, classes)
            return
        (X, y), rest = first_rows(pieces)
        self._start(X, y, classes)
        for X, y in rest:
            self._continue(X, y, None, prequential=False)

    def _start(self, X: Any, y: Any, announced: Any) -> None:
        table = self._validated(X, y, reset=True)
        labels = checked_labels(from_other_library(y))
        check_consistent_length(table, labels)
        classes = labels if announced is None else checked_labels(from_other_library(announced))
        classes = np.unique(classes)
        if len(classes) < 2:
            raise DataError(
                f"There is one class only ({classes.tolist()[0]!r}): name all classes that will "
                "occur, as `partial_fit(X, y, classes=...)`."
            )
        temperature = self._fixed_temperature
        codes = class_codes(labels, classes)
        class_weights(self.class_weight, classes, np.bincount(codes, minlength=len(classes)))
        learner = self._make_learner(len(classes)).to(self._resolved_device())
        if not isinstance(learner, InContextModel):
            raise DataError(
                f"y has {len(classes)} classes, more than a model can take that reads a table "
                "piece by piece: join classes, or fit all rows at once."
            )
        # Without labels it has no rates of classes: those of the first rows alone are poor.
        preprocessor = TablePreprocessor(self.categorical_features).fit(table)
        matrix = preprocessor.transform(table)
        with threads(self.n_jobs):
            ensemble = self._members(
                learner,
                preprocessor,
                matrix,
                codes,
                self._seed(),
                num_classes=len(classes),
                in_order=True,
            )
        self._set_fitted(preprocessor, ensemble, classes, codes, temperature)

    def _continue(self, X: Any, y: Any, announced: Any, *, prequential: bool) -> None:
        if announced is not None:
            classes = np.unique(checked_labels(from_other_library(announced)))
            if not np.array_equal(classes, self.classes_):
                raise DataError(
                    f"classes={classes.tolist()} differ from those of the first call, "
                    f"{self.classes_.tolist()}: leave them out, or fit anew to change them."
                )
        table = self._validated(X, y, reset=False)
        labels = checked_labels(from_other_library(y))
        check_consistent_length(table, labels)
        codes = class_codes(labels, self.classes_)
        if prequential:
            score = _score(self.predict_proba(table), codes, self.n_samples_seen_)
            self.prequential_ = pd.concat([self.prequential_, score], ignore_index=True)
        matrix, device = self.preprocessor_.transform(table), self._resolved_device()
        with threads(self.n_jobs):
            self.ensemble_ = retried_smaller(
                lambda rows: extended(
                    self.ensemble_,
                    matrix,
                    codes,
                    device=device,
                    rows_per_batch=rows,
                    progress=self.verbose > 0,
                ),
                self._rows_at_a_time(len(matrix)),
                what=f"reading {len(matrix)} rows x {matrix.shape[1]} columns",
                device=device,
            )
        self.class_count_ = self.class_count_ + np.bincount(codes, minlength=len(self.classes_))
        self.n_samples_seen_ += len(codes)

    def _check_extensible(self) -> None:
        """Raise `UnsupportedReadout` if the fitted model, or else the given one, does not grow."""
        if self.__sklearn_is_fitted__():
            model = self.ensemble_.model
        else:
            try:
                model = self._load_model()
            except CheckpointError:
                return  # the method itself says what is wrong with the file
        _model_of(model).check_extensible()

    @abstractmethod
    def _load_model(self) -> InContextModel:
        """The model that the constructor's argument names."""


def extended(
    ensemble: FittedEnsemble[Any],
    matrix: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    *,
    device: torch.device,
    rows_per_batch: int,
    progress: bool,
) -> FittedEnsemble[Any]:
    """The ensemble after more rows, which all members write in the order given.

    Args:
        ensemble: What to extend; it does not change, except that its model is moved to `device`.
        matrix: Rows `[rows, columns]` as `TablePreprocessor.transform` gives them.
        labels: Class index of each row.
        device: Where to compute.
        rows_per_batch: Maximum number of rows in the network at a time, over all members.
        progress: Whether to show a progress bar.
    """
    ensemble = replace(
        ensemble,
        model=ensemble.model.to(device),
        states=map_tensors(lambda tensor: tensor.to(device), ensemble.states),
    )
    model, size = _model_of(ensemble.model), ensemble.group_size
    states = []
    with progress_bar("fit", len(ensemble.views) * len(matrix), progress) as bar:
        for group, state in enumerate(ensemble.states):
            views = tuple(
                view._replace(row_seed=None) for view in ensemble.views[group * size :][:size]
            )
            x, y = as_seen(ensemble, views, matrix, labels)
            rows = rows_at_a_time(device, rows_per_batch, len(views))
            with torch.inference_mode():
                states.append(model.fit(x, y, state=state, rows_per_chunk=rows))
            bar.update(len(views) * len(matrix))
    return replace(ensemble, states=tuple(states))


def _model_of(learner: ContextLearner[Any]) -> InContextModel:
    """The learner as a model, whose states can be extended if it reads causally."""
    if not isinstance(learner, InContextModel):
        raise UnsupportedReadout(
            f"A {type(learner).__name__} cannot be extended by more rows: fit all rows at once, or "
            "use a model whose layers read causally (tabicl_linear.readouts.Causal) and that takes "
            "all classes, with long_context='full'."
        )
    return learner


def _score(
    probabilities: npt.NDArray[np.float64], codes: npt.NDArray[np.int64], rows_seen: int
) -> pd.DataFrame:
    """A row of `prequential_`."""
    # A probability of 0 costs as much as the smallest step from 1, as in scikit-learn.
    given = probabilities[np.arange(len(codes)), codes].clip(np.finfo(np.float64).eps)
    return pd.DataFrame(
        {
            "rows_seen": [rows_seen],
            "rows": [len(codes)],
            "log_loss": [float(-np.log(given).mean())],
            "accuracy": [float((probabilities.argmax(axis=1) == codes).mean())],
        }
    )

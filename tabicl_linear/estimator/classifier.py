"""The scikit-learn classifier on top of a pretrained in-context learner."""

import copy
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

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

from tabicl_linear.checkpoint import load_model
from tabicl_linear.errors import CheckpointError, ConfigError, DataError
from tabicl_linear.estimator.ensemble import fit_ensemble
from tabicl_linear.estimator.labels import checked_labels, one_line
from tabicl_linear.estimator.preprocessing import CategoricalFeatures, Table, TablePreprocessor
from tabicl_linear.model import InContextModel

DEFAULT_WEIGHTS = Path(__file__).parents[1] / "checkpoints" / "default.safetensors"


class TabICLLinearClassifier(ClassifierMixin, BaseEstimator):
    """Classifies the rows of a table with a pretrained in-context learner, without training.

    `fit` encodes the table, writes its rows into the model's states and keeps the states: their
    size does not depend on the number of rows (with softmax attention it does). `predict` only
    reads them.

    Args:
        model: "default" for the weights that ship with the package, a path to a Lightning
            checkpoint or a safetensors export, or a model.
        n_estimators: Members of the preprocessing ensemble.
        softmax_temperature: Divides the logits (the authors use 0.8).
        categorical_features: Columns to read as categories whatever they hold: positions, names,
            or one boolean per column. Text, booleans and pandas categories always are.
        device: "cpu", "cuda", "cuda:1" ...; None takes CUDA where it is available.
        random_state: Seed of the ensemble.
        n_jobs: CPU threads while fitting and predicting (-1: all); None leaves torch's setting.
        rows_per_batch: Most rows in the network at a time, all members together; longer tables go
            through it in chunks, which changes predictions by rounding alone. Lower it when
            memory runs out.
        verbose: 1 shows progress on stderr (on a terminal).

    Attributes:
        classes_: Class labels, sorted.
        n_features_in_: Columns of the training table.
        feature_names_in_: Their names, where the table had names that are all strings.
        preprocessor_: What was learnt about the columns (`columns`, with those that were dropped).
        ensemble_: The fitted members.
        state_bytes_: Bytes of the fitted states of one member.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | InContextModel = "default",
        *,
        n_estimators: int = 8,
        softmax_temperature: float = 0.8,
        categorical_features: CategoricalFeatures = None,
        device: str | torch.device | None = None,
        random_state: Any = 42,
        n_jobs: int | None = None,
        rows_per_batch: int = 16384,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.n_estimators = n_estimators
        self.softmax_temperature = softmax_temperature
        self.categorical_features = categorical_features
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.rows_per_batch = rows_per_batch
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any) -> "TabICLLinearClassifier":
        """Read the training table into the model's states.

        A call that fails leaves the classifier as it was.

        Args:
            X: Table `[rows, columns]`: array, frame or nested list; may hold missing values.
            y: Class labels of the rows.

        Raises:
            DataError: The table or the labels cannot be used: one class only, more classes than
                the model has outputs, missing labels, columns that cannot be read.
            ConfigError: A constructor argument is out of range.
            CheckpointError: The model cannot be loaded.
        """
        self._check_arguments()
        before = dict(self.__dict__)
        try:
            self._fit(X, y)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

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
        device = self._resolved_device()
        model = self._load_model()
        limit = model.architecture.num_classes
        if len(classes) > limit:
            raise DataError(
                f"y holds {len(classes)} classes and the model takes at most {limit}: join rare "
                "classes, or predict groups of classes first and then the classes of a group."
            )
        self._warn_beyond_training(model, len(labels))
        preprocessor = TablePreprocessor(self.categorical_features).fit(table)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with _threads(self.n_jobs):
            self.ensemble_ = fit_ensemble(
                model.to(device),
                preprocessor.transform(table),
                codes,
                categorical=preprocessor.categorical,
                num_members=self.n_estimators,
                seed=seed,
                rows_per_batch=self.rows_per_batch,
                progress=self.verbose > 0,
            )
        self.classes_ = classes
        self.preprocessor_ = preprocessor
        self.state_bytes_ = self.ensemble_.state_bytes

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Class probabilities `[rows, classes]`, in the order of `classes_`.

        A row's probabilities do not depend on the other rows (up to rounding).

        Raises:
            DataError: The columns are not those of the training table.
        """
        check_is_fitted(self, "ensemble_")
        self._check_arguments()
        table = self._validated(X, reset=False)
        with _threads(self.n_jobs):
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

    def __getstate__(self) -> dict[str, Any]:
        # A classifier fitted on a GPU must load on a machine without one.
        state = dict(super().__getstate__())
        if "ensemble_" in state:
            state["ensemble_"] = state["ensemble_"].on("cpu")
        return state

    def _check_arguments(self) -> None:
        for name in ("n_estimators", "rows_per_batch"):
            value = getattr(self, name)
            if not _is_integer(value) or value < 1:
                raise ConfigError(f"{name}={value!r}: give a positive integer.")
        temperature = self.softmax_temperature
        if not isinstance(temperature, Real) or not 0 < temperature < np.inf:
            raise ConfigError(f"softmax_temperature={temperature!r}: give a positive number.")
        if self.n_jobs is not None and (not _is_integer(self.n_jobs) or self.n_jobs == 0):
            raise ConfigError(
                f"n_jobs={self.n_jobs!r}: give a number of threads, -1 for all, or None."
            )

    def _load_model(self) -> InContextModel:
        if isinstance(self.model, InContextModel):
            return copy.deepcopy(self.model).eval()
        if not isinstance(self.model, str | os.PathLike):
            raise ConfigError(f"model={self.model!r}: give 'default', a path or an InContextModel.")
        if self.model != "default":
            return load_model(Path(self.model)).eval()
        if not DEFAULT_WEIGHTS.is_file():
            raise CheckpointError(
                "model='default': this installation carries no weights; pretrain a model with "
                "`make demo` or `tabicl-linear fit` and pass model=PATH to its last.ckpt or export."
            )
        return load_model(DEFAULT_WEIGHTS).eval()

    def _resolved_device(self) -> torch.device:
        if self.device is None:
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(
                f"device={self.device!r} is no torch device; give 'cpu', 'cuda' or 'cuda:INDEX'."
            ) from error
        if device.type not in ("cpu", "cuda"):
            # Column statistics are float64, which MPS for one does not have.
            raise ConfigError(
                f"device={str(device)!r} is not served; give 'cpu', 'cuda' or 'cuda:INDEX'."
            )
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise ConfigError(
                f"device={str(device)!r}, and torch sees {torch.cuda.device_count()} CUDA devices; "
                "give another, or 'cpu'."
            )
        return device

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

    def _warn_beyond_training(self, model: InContextModel, num_rows: int) -> None:
        trained = model.provenance.get("trained_rows")
        if trained is not None and num_rows > trained[1]:
            warnings.warn(
                f"The table has {num_rows} rows and the model was pretrained on tables of at most "
                f"{trained[1]}: accuracy may fall with more rows; compare with a sample of that "
                "size, or use a model pretrained on longer tables.",
                UserWarning,
                stacklevel=4,
            )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@contextmanager
def _threads(n_jobs: int | None) -> Iterator[None]:
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

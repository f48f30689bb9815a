"""The scikit-learn classifier on top of a pretrained in-context learner."""

import copy
import os
from pathlib import Path
from typing import Any, Literal, Self

import pandas as pd
import torch
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from tabicl_linear.checkpoint import load_model
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.estimator import state_file
from tabicl_linear.estimator.arguments import resolved_device, threads
from tabicl_linear.estimator.class_weights import ClassWeight
from tabicl_linear.estimator.diagnosis import diagnosis
from tabicl_linear.estimator.frames import from_other_library
from tabicl_linear.estimator.labels import checked_labels, class_codes
from tabicl_linear.estimator.learner import ContextLearner
from tabicl_linear.estimator.long_context import LongContextMode
from tabicl_linear.estimator.many_classes import ManyClasses
from tabicl_linear.estimator.preprocessing import CategoricalFeatures
from tabicl_linear.estimator.presets import EnsembleName
from tabicl_linear.estimator.refinement import RefinedClassifier
from tabicl_linear.model import InContextModel
from tabicl_linear.shipped import WEIGHTS, checkpoint_path


class TabICLLinearClassifier(RefinedClassifier):
    """Classifies the rows of a table with a pretrained in-context learner, without training.

    `fit` encodes the table, writes its rows into the model's states and keeps the states, whose
    size does not depend on the number of rows (except with softmax attention). `predict` only
    reads them.

    Args:
        model: Weights that ship with the package, "default" or "streaming" (which `partial_fit` can
            extend); a path to a Lightning checkpoint or a safetensors export; or a model.
        ensemble: "default", or "paper" for the authors' ensemble of 10 members.
        n_estimators: Members of the ensemble; None takes those of `ensemble` (8, or 10).
        softmax_temperature: Divides the logits. None takes that of `ensemble` (0.9); "auto"
            calibrates it on up to a fifth of the rows, held out from a first fit, and then fits on
            all rows, which takes twice the time.
        average_logits: Average the members' logits; False averages their probabilities.
        refine: Optimise the fitted states on the training rows, a tenth of them held out, while the
            model stays as it is; takes minutes. See docs/explaining.md.
        class_weight: Factors for the probabilities of classes, a dict by label, or "balanced" for
            factors in inverse proportion to their frequency.
        long_context: How to read more rows than the model was pretrained on: "full" in one context,
            "blocks" in several of at most that length, whose mean is taken, or "auto", whichever is
            better on a tenth of the rows, held out from a first fit of each; that takes three times
            the time. See docs/growing.md.
        categorical_features: Columns to read as categories whatever they hold: positions, names,
            or one boolean per column. Text, booleans and pandas categories are always read so.
        device: "cpu", "cuda", "cuda:1" ...; None takes CUDA where it is available.
        random_state: Seed of the ensemble.
        n_jobs: CPU threads while fitting and predicting (-1: all); None leaves torch's setting.
        rows_per_batch: Maximum number of rows in the network at a time, over all members; longer
            tables are processed in chunks, which changes predictions only by rounding. None takes
            16,384, or less where memory is scarce. If memory runs out, an eighth is tried once.
        verbose: 1 shows progress on stderr (on a terminal).

    Attributes:
        classes_: Class labels, sorted.
        class_count_: Training rows of each class.
        temperature_: The temperature at the time of fitting.
        n_features_in_: Columns of the training table.
        feature_names_in_: Their names, if the table had names and all of them are strings.
        long_context_: What `long_context` came to, and the evidence.
        preprocessor_: What was learnt about the columns (`columns`, including dropped ones).
        ensemble_: The fitted members.
        state_bytes_: Bytes of the fitted states of one member.
        state_nbytes_: Bytes of those of all members.
        n_samples_seen_: Rows read so far.
        refine_: With `refine`, a row for each pass of each member: the losses on the way, and
            whether the member uses a refined state (`tabicl_linear.estimator.refinement.refined`).
        prequential_: How well `partial_fit` predicted pieces before it read them; no rows if
            it was not asked to.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | InContextModel = "default",
        *,
        ensemble: EnsembleName = "default",
        n_estimators: int | None = None,
        softmax_temperature: float | Literal["auto"] | None = None,
        average_logits: bool = True,
        refine: bool = False,
        class_weight: ClassWeight = None,
        long_context: LongContextMode = "full",
        categorical_features: CategoricalFeatures = None,
        device: str | torch.device | None = None,
        random_state: Any = 42,
        n_jobs: int | None = None,
        rows_per_batch: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.ensemble = ensemble
        self.n_estimators = n_estimators
        self.softmax_temperature = softmax_temperature
        self.average_logits = average_logits
        self.refine = refine
        self.class_weight = class_weight
        self.long_context = long_context
        self.categorical_features = categorical_features
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.rows_per_batch = rows_per_batch
        self.verbose = verbose

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str | os.PathLike[str] | InContextModel | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """A fitted classifier from a file that `save` has written.

        Args:
            path: The file.
            model: The model that it was fitted with, if that is now in another place, or was given
                as an object.
            device: Where to compute, whatever device it was fitted on; see the class.
            dtype: torch.float32 or torch.float64; that in which it was saved if left out.

        Raises:
            CheckpointError: The file is missing, damaged, or of another version or class, or the
                model is missing or another one.
            ConfigError: The device or dtype is not supported.
        """

        def find(name: str) -> InContextModel:
            if model is None and not name:
                raise CheckpointError(
                    f"{path} was fitted with a model that was given as an object: give it again, "
                    "`load(path, model=MODEL)`."
                )
            try:
                return cls(name if model is None else model)._load_model()
            except CheckpointError as error:
                if model is not None:
                    raise
                raise CheckpointError(
                    f"{path} was fitted with the model {name!r}, which cannot be read here: give "
                    f"its place as `load(path, model=PATH)`. {error}"
                ) from error

        content = state_file.read(
            Path(path), cls.__name__, find, device=resolved_device(device), dtype=dtype
        )
        given = {} if model is None else {"model": model}
        return cls._restored(content, device=device, **given)

    def diagnose(self, X: Any, y: Any, *, row_orders: int = 4) -> pd.DataFrame:
        """Look into the fitted states, and read rows again to see how they come about.

        Takes about two times `row_orders` as long as `fit` does. Nothing changes.

        Args:
            X: Rows, usually those of `fit`; with the columns of those. At least ten.
            y: Their labels.
            row_orders: Orders of the rows to compare; at least two.

        Returns:
            A row for each member, digit (of the code of many classes; else 1), layer, head and
            measure, all counted from 1, and its `value`. Layer and head are missing where a measure
            belongs to a layer or a member as a whole, and measures that a model has nothing for are
            left out:

            - norm, effective_rank: Frobenius norm and exp of the entropy of the singular values of
              the fitted states, means over cells.
            - write_rate, kept: mean over these rows of the strength with which a layer writes a
              token, and of the share of its state that it keeps.
            - cosine_half: cosine between the states after half and after all of these rows.
            - order_spread: how far the probabilities of up to 200 of these rows move with the order
              in which the others are read: mean total variation (0 to 1) to their mean.

            `tabicl_linear.analysis.diagnosis.diagnosis_figure` draws it.

        Raises:
            NotFittedError: The classifier has not been fitted.
            DataError: The rows cannot be used, or are too few.
            ConfigError: There are fewer than two orders, or the table was read in blocks
                (`long_context`).
        """
        check_is_fitted(self, "ensemble_")
        self._check_arguments()
        table = self._validated(X, reset=False)
        labels = checked_labels(from_other_library(y))
        check_consistent_length(table, labels)
        with threads(self.n_jobs):
            return diagnosis(
                self.ensemble_.on(str(self._resolved_device())),
                self.preprocessor_.transform(table),
                class_codes(labels, self.classes_),
                self.preprocessor_.categorical,
                row_orders=row_orders,
                progress=self.verbose > 0,
            )

    def _make_learner(self, num_classes: int) -> ContextLearner[Any]:
        model = self._load_model()
        self._check_refinable(model)
        limit = model.architecture.num_classes
        if num_classes > limit:
            return ManyClasses(model, num_classes=num_classes, max_classes=limit)
        return model

    def _load_model(self) -> InContextModel:
        if isinstance(self.model, InContextModel):
            return copy.deepcopy(self.model).eval()
        if not isinstance(self.model, str | os.PathLike):
            raise ConfigError(
                f"model={self.model!r}: give 'default', 'streaming', a path or an InContextModel."
            )
        path = checkpoint_path(self.model)
        if self.model in WEIGHTS and not path.is_file():
            raise CheckpointError(
                f"model={self.model!r}: this installation carries no weights; pretrain a model "
                "with `make demo` or `tabicl-linear fit`, and pass model=PATH to its last.ckpt or "
                "export."
            )
        return load_model(path).eval()

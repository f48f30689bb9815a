"""The scikit-learn classifier on top of a pretrained in-context learner."""

import os
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, final

import numpy as np
import pandas as pd
import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tabicl_linear.errors import CheckpointError, ConfigError, DataError, UnsupportedReadout
from tabicl_linear.estimator import fitting
from tabicl_linear.estimator.base import EnsembleClassifier, fitted_of, fitted_part
from tabicl_linear.estimator.choices import LongContextMode
from tabicl_linear.estimator.class_weights import ClassWeight
from tabicl_linear.estimator.columns.declared import CategoricalFeatures
from tabicl_linear.estimator.devices import computing
from tabicl_linear.estimator.diagnosis import diagnosis
from tabicl_linear.estimator.learners import pretrained
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import ChosenTreesLearners
from tabicl_linear.estimator.learners.interface import ComposedLearner, Learners
from tabicl_linear.estimator.learners.pretrained import PretrainedLearners
from tabicl_linear.estimator.members.ensemble import Encoded
from tabicl_linear.estimator.plan import EnsembleName, TreesArgument, check_unchanged
from tabicl_linear.estimator.refinement import check_refinable
from tabicl_linear.estimator.rows.labelled import checked_rows, with_labels
from tabicl_linear.estimator.rows.labels import announced_classes, as_objects, class_codes
from tabicl_linear.model import InContextModel


def _takes_trees(classifier: "TabICLLinearClassifier") -> bool:
    """Whether the arguments ask for trees, on tables with enough rows."""
    if classifier.trees != "auto":
        return bool(classifier.trees)
    return (
        isinstance(classifier.model, str)
        and classifier.model == "default"
        and classifier.ensemble == "default"
        and not classifier.refine
        and classifier.long_context == "full"
    )


def _is_extensible(classifier: "TabICLLinearClassifier") -> bool:
    """Whether rows can be added to the fitted model or, before a fit, to the one named.

    Raises:
        UnsupportedReadout: They cannot; the message says why, and which models can.
    """
    is_fitted = classifier.__sklearn_is_fitted__()
    if not is_fitted and _takes_trees(classifier):
        return True
    try:
        model = classifier.fitted_.members.model if is_fitted else pretrained.load(classifier.model)
        model.check_extensible()
    except CheckpointError:
        return True  # the method itself says what is wrong with the file
    except UnsupportedReadout as error:
        raise UnsupportedReadout(
            f"{error} What can be extended: trees (the default), and the weights model='streaming'."
        ) from error
    return True


@final
@dataclass(eq=False, repr=False)
class TabICLLinearClassifier(EnsembleClassifier):
    """Classifies rows of a table by trees chosen on it, or by a pretrained in-context learner.

    `fit` encodes the table, writes its rows into the model's states and keeps the states, whose
    size does not depend on the number of rows (except with softmax attention). `predict` only
    reads them.

    Args:
        model: Weights that ship with the package, "default" or "streaming" (which `partial_fit` can
            extend); a path to a Lightning checkpoint or a safetensors export; or a model.
        trees: Whether trees chosen on the table predict instead of the model, in closed form, as in
            `RandomFeatureRidge`. "auto" takes them from 50 rows on, and up to 400 rows (1,000 if
            classes are rare) together with the model, if `model`, `ensemble`, `refine` and
            `long_context` have their default values. False never takes them.
        ensemble: "default", or "paper" for the authors' ensemble of 10 members.
        n_estimators: Members of the ensemble. None takes 8, or 10 with "paper". With trees it takes
            two for 50 to 4,000 rows and else one, or as many as are needed to see all columns.
        softmax_temperature: Divides the logits. None takes 0.9, or 0.8 with "paper"; with trees it
            takes 1, as their logits are calibrated already. "auto" holds up to a fifth of the rows
            out of a first fit, calibrates the temperature on them, and then fits on all rows, which
            takes twice the time.
        average_logits: Average the members' logits; False averages their probabilities.
        refine: Optimise the fitted states on the training rows, a tenth of them held out, while the
            model stays as it is. This takes minutes. See docs/explaining.md.
        class_weight: Factors for the probabilities of classes: a dict by label, or "balanced" for
            factors inversely proportional to the class frequencies.
        long_context: How to read more rows than the model was pretrained on. "full" reads them as
            one context, and "blocks" as several of at most that length, whose predictions are
            averaged. "auto" takes the better of the two on a tenth of the rows, held out of a first
            fit of each, which takes three times the time. See docs/growing.md.
        categorical_features: Columns to read as categories whatever they hold: positions, names,
            or one boolean per column. Text other than numbers and dates, booleans and pandas
            categories are always read as categories.
        device: "cpu", "cuda", "cuda:1" ...; None takes CUDA where it is available.
        random_state: Seed of the ensemble.
        n_jobs: CPU threads while fitting and predicting (-1: all cores that the process may use).
            None leaves torch's setting, but takes no more threads than there are cores.
        rows_per_batch: Maximum number of rows in the network at a time, over all members. Longer
            tables are processed in chunks, which changes predictions only by rounding. None takes
            16,384, or less where memory is scarce. If memory runs out, the work is tried once more
            with an eighth.
        verbose: 1 shows progress on stderr (on a terminal).

    Attributes:
        classes_: Class labels, sorted.
        class_count_: Training rows of each class.
        temperature_: The temperature of the fit: fixed, or calibrated on held-out rows.
        n_features_in_: Columns of the training table.
        feature_names_in_: Their names, if the table had names and all of them are strings.
        long_context_: Whether the table was read as one context or in blocks, and the log-losses
            that decided (`tabicl_linear.estimator.choices.LongContext`).
        preprocessor_: What was learnt about the columns (`columns`, including dropped ones).
        ensemble_: The fitted members.
        state_bytes_: Bytes of the fitted states of one member.
        state_nbytes_: Bytes of the fitted states of all members.
        n_samples_seen_: Rows read so far.
        refine_: With `refine`, a row for each pass of each member: the losses, and whether the
            member uses a refined state (`tabicl_linear.estimator.refinement.refined`).
        prequential_: How well `partial_fit` with `prequential` predicted each piece before reading
            it: `rows_seen` before the piece, `rows` in it, `log_loss` and `accuracy` on it.
        fitted_: All of this as one value.
    """

    model: str | os.PathLike[str] | InContextModel = "default"
    _: KW_ONLY
    trees: TreesArgument = "auto"
    ensemble: EnsembleName = "default"
    n_estimators: int | None = None
    softmax_temperature: float | Literal["auto"] | None = None
    average_logits: bool = True
    refine: bool = False
    class_weight: ClassWeight = None
    long_context: LongContextMode = "full"
    categorical_features: CategoricalFeatures = None
    device: str | torch.device | None = None
    random_state: Any = 42
    n_jobs: int | None = None
    rows_per_batch: int | None = None
    verbose: int = 0

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
            model: The model that it was fitted with, if that was an object or its file has moved.
            device: Device to compute on, whichever it was fitted on; see the class.
            dtype: torch.float32 or torch.float64; None takes that in which it was saved.

        Raises:
            CheckpointError: The file is missing, damaged, or of another version or class, or the
                model is missing or not the one that it was fitted with.
            ConfigError: The device or dtype is not supported.
        """
        return cls._read(path, model=model, device=device, dtype=dtype)

    long_context_ = fitted_part("long_context_", "long_context")
    prequential_ = fitted_part("prequential_", "prequential")

    @property
    def refine_(self) -> pd.DataFrame:
        """With `refine`, a row for each pass of each member."""
        refinement = fitted_of(self, "refine_").refinement
        if refinement is None:
            raise AttributeError("The states were not refined: refine=False.")
        return refinement

    @available_if(_is_extensible)
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, *, prequential: bool = False
    ) -> Self:
        """Read more rows into the states.

        Reading a table piece by piece gives the same states as reading it whole, in the same order
        and with what the first rows taught: how columns are encoded and scaled, and which are
        dropped because they do not vary. With trees, these are the first 6,000 rows, which are held
        until then. With a model, they are the first piece, which should thus be large enough to
        show what the columns hold. Only trees and causal models have this method. Trees are solved
        at the next prediction, not here, which takes seconds. See docs/growing.md.

        A call that fails leaves the classifier as it was.

        Args:
            X: Rows; the first call, or `fit`, decides which columns there are.
            y: Their labels.
            classes: All classes that will ever occur. The first call takes them, and later ones may
                repeat them. None takes those of the first piece.
            prequential: Predict the piece before reading it, and add a row to `prequential_`. The
                first piece is only read.

        Raises:
            AttributeError: The model cannot be extended; the cause of the error names those that
                can.
            DataError: The rows cannot be used (see `fit`), or a label is not one of the classes.
            ConfigError: A constructor argument is out of range, or it has changed since the call
                before and only a new fit can obey it, such as `model` or `trees`.
            CheckpointError: The model cannot be loaded.
        """
        plan = self._plan()
        announced = None if classes is None else announced_classes(classes)
        if not self.__sklearn_is_fitted__():
            rows = checked_rows(X, y)
            with computing(plan.n_jobs):
                return self._keep(fitting.start(rows, plan, self._learners(), announced))
        if announced is not None and not np.array_equal(announced, self.classes_):
            raise DataError(
                f"classes={as_objects(announced)} differ from those of the first call, "
                f"{as_objects(self.classes_)}: leave them out, or fit anew to change them."
            )
        fitted = self.fitted_
        check_unchanged(vars(self), self._arguments_of_fit, are_held=fitted.held is not None)
        rows = with_labels(self._queries(X), y, X)
        with computing(plan.n_jobs):
            return self._keep(fitting.extended(fitted, rows, plan, prequential=prequential))

    def diagnose(self, X: Any, y: Any, *, row_orders: int = 4) -> pd.DataFrame:
        """Measure the fitted states, and read rows again to see how the states come about.

        This takes about 2 * `row_orders` times as long as `fit`, and changes nothing.

        Args:
            X: At least ten rows with the columns of the training table, usually those of `fit`.
            y: Their labels.
            row_orders: Orders of the rows to compare; at least two.

        Returns:
            A table with the `value` of each measure, by member, digit (of the code of many classes;
            else 1), layer and head, all counted from 1. Layer or head is missing where a measure
            belongs to a layer or a member as a whole. docs/explaining.md describes the measures.

        Raises:
            NotFittedError: The classifier has not been fitted.
            DataError: The rows cannot be used, or are too few.
            ConfigError: There are fewer than two orders, the table was read in blocks
                (`long_context`), or trees predict it (`trees`).
        """
        check_is_fitted(self)
        plan = self._plan()
        if not isinstance(self.fitted_.members.model, InContextModel | ComposedLearner):
            raise ConfigError(
                "Trees that were chosen on the table predict it, and there is no model to look "
                "into: fit with trees=False."
            )
        table, labels = with_labels(self._queries(X), y, X)
        fitted = self.fitted_.on(plan.device)
        with computing(plan.n_jobs):
            matrix = fitted.columns.transform(table)
            codes = class_codes(labels, fitted.classes, "leave out rows of other classes")
            rows = Encoded(matrix, codes, fitted.columns, fitted.classes)
            return diagnosis(fitted.members, rows, row_orders=row_orders, progress=plan.progress)

    def _learners(self) -> Learners:
        if not _takes_trees(self):
            return self._of_model()
        if self.trees == "auto":
            return ChosenTreesLearners(others=self._of_model)
        if self.refine or self.long_context != "full":
            raise ConfigError(
                f"trees=True predicts without the model, and refine={self.refine!r} and "
                f"long_context={self.long_context!r} say how the model reads: give trees=False, or "
                "leave the other two out."
            )
        return ChosenTreesLearners()

    def _of_model(self) -> PretrainedLearners:
        model = pretrained.load(self.model)
        if self.refine:
            check_refinable(model)
        return PretrainedLearners(model)

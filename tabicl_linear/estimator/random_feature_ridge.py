"""The closed form alone as a scikit-learn classifier: the baseline a trained model must beat."""

import os
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, final

import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.base import EnsembleClassifier
from tabicl_linear.estimator.class_weights import ClassWeight
from tabicl_linear.estimator.columns.declared import CategoricalFeatures
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import (
    MAX_COLUMNS,
    OPTIONS,
    ChosenTreesLearners,
)
from tabicl_linear.estimator.learners.closed_form import ClosedForms
from tabicl_linear.estimator.plan import EnsembleName, TreesArgument, checked_count
from tabicl_linear.ridge_inputs import RidgeOptions

COLUMNS = 40
"""Maximum number of columns of a member, if no trees are chosen on the table."""


@final
@dataclass(eq=False, repr=False)
class RandomFeatureRidge(EnsembleClassifier):
    """Classifies the rows of a table by ridge regressions on random features, in closed form.

    There is no pretraining and no iterative optimisation. Models with ridge inputs
    (docs/architecture.md) start from these predictions, so this classifier, with the preprocessing
    and the ensemble of `TabICLLinearClassifier`, is the baseline that they must beat. It takes any
    number of classes.

    Args:
        options: Features and penalties. None takes those of `RidgeOptions`, and makes logits from
            the predicted shares by a logistic regression (`calibration="logistic"`). With more than
            50 classes, one factor for all shares replaces the regression, unless trees are chosen
            on the table.
        trees: Whether trees are chosen on the table, beside the random features. They are grown by
            boosting on one half of the rows, and the weights of their leaves are solved on the
            other half, several times. False takes the random features alone. "auto" chooses trees
            unless `options` are given.
        max_columns: Maximum number of columns that a member of the ensemble sees. In wider tables
            each member draws its own columns at random. None takes 100 if trees are chosen on the
            table, else 40.
        softmax_temperature: Divides the logits, whose scale has already been fitted. "auto"
            calibrates it.
        random_state: Seed of the ensemble; that of the features is `options.seed`.

    The other arguments and the attributes are those of `TabICLLinearClassifier`.
    """

    options: RidgeOptions | None = None
    _: KW_ONLY
    trees: TreesArgument = "auto"
    max_columns: int | None = None
    ensemble: EnsembleName = "default"
    n_estimators: int | None = None
    softmax_temperature: float | Literal["auto"] | None = 1.0
    average_logits: bool = True
    class_weight: ClassWeight = None
    categorical_features: CategoricalFeatures = None
    device: str | torch.device | None = None
    random_state: Any = 42
    n_jobs: int | None = None
    rows_per_batch: int | None = None
    verbose: int = 0

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, device: str | torch.device | None = None
    ) -> Self:
        """A fitted classifier from a file that `save` has written; see `TabICLLinearClassifier`.

        Raises:
            CheckpointError: The file is missing, damaged, or of another version or class.
            ConfigError: The device is not supported.
        """
        return cls._read(path, device=device)

    def _learners(self) -> ClosedForms | ChosenTreesLearners:
        max_columns = checked_count(vars(self), "max_columns")
        options = OPTIONS if self.options is None else self.options
        if not isinstance(options, RidgeOptions):
            raise ConfigError(f"options={options!r}: give RidgeOptions, or None.")
        if options.form != "leave_one_out":
            raise ConfigError(
                f"options.form={options.form!r} leaves the last rows of a table unused; give "
                "'leave_one_out', which predicts from all of them."
            )
        takes_trees = self.options is None if self.trees == "auto" else self.trees
        if takes_trees:
            return ChosenTreesLearners(options, max_columns or MAX_COLUMNS)
        return ClosedForms(options, max_columns or COLUMNS)

"""Which learner with trees reads a table: of many rows, of few, or of rows that come in pieces."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import ChosenTrees
from tabicl_linear.estimator.learners.chosen_trees.divisions import FEWEST_ROWS
from tabicl_linear.estimator.learners.closed_form import check_budget
from tabicl_linear.estimator.learners.interface import Companion, ContextLearner, Learners
from tabicl_linear.ridge_inputs import RidgeOptions

MAX_COLUMNS = 100
"""Columns of a member, unless another number is given."""
OPTIONS = RidgeOptions(calibration="logistic")
WEIGHTS_BESIDE = ((200, 0.4), (400, 0.2))
"""Up to so many rows, the weight of a network's logits beside trees (docs/training_log.md)."""


@dataclass(frozen=True)
class ChosenTreesLearners:
    """Learners with trees, and others for tables of so few rows that none are grown.

    Attributes:
        options: Fixed features.
        max_columns: Maximum number of columns of a member.
        others: Makes what reads tables of so few rows that none are grown, and what is mixed with
            trees that are grown on few; None where trees do all.
    """

    options: RidgeOptions = OPTIONS
    max_columns: int = MAX_COLUMNS
    others: Callable[[], Learners] | None = None

    is_causal = False
    takes_pieces = compares_columns = True

    def for_table(
        self, num_classes: int, num_rows: int, *, grows: bool = False
    ) -> ContextLearner[Any]:
        """The learner for so many classes and rows; trees where rows will be added.

        Raises:
            ConfigError: There is no room for as many features.
        """
        if self.others is not None and num_rows < FEWEST_ROWS and not grows:
            return self.others().for_table(num_classes, num_rows)
        check_budget(self.options, num_columns=self.max_columns, num_rows=num_rows)
        return ChosenTrees(
            self.options, max_columns=self.max_columns, num_classes=num_classes, grows=grows
        )

    def companion(self, num_classes: int, num_rows: int) -> Companion | None:
        """What reads tables without trees, where there are trees, but few rows for them."""
        weight = next((weight for most, weight in WEIGHTS_BESIDE if num_rows <= most), 0.0)
        if self.others is None or num_rows < FEWEST_ROWS or not weight:
            return None
        learner = self.others().for_table(num_classes, num_rows)
        return Companion(learner, weight)

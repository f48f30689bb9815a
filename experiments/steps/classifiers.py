"""The classifier as it would be without some of its parts, which it has no switches for."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.errors import DataError
from tabicl_linear.estimator import fitting
from tabicl_linear.estimator.columns.categorical import CategoryColumn
from tabicl_linear.estimator.columns.dropped import DroppedColumn
from tabicl_linear.estimator.columns.numeric import MissingColumn
from tabicl_linear.estimator.columns.preprocessor import (
    Column,
    TablePreprocessor,
    UsedColumn,
)
from tabicl_linear.estimator.columns.target_rates import RateColumn
from tabicl_linear.estimator.learners import pretrained
from tabicl_linear.estimator.learners.pretrained import PretrainedLearners
from tabicl_linear.estimator.plan import checked_plan
from tabicl_linear.estimator.rows.frames import computable
from tabicl_linear.estimator.rows.labelled import checked_rows
from tabicl_linear.model import InContextModel

CATEGORIES = "categories"
"""The model is told which columns hold codes of categories; without: codes are numbers."""
MISSING = "missing"
"""Missing is a category, and numbers have columns that say where they are missing; without:
missing cells are left to the model, and a column of one value or nothing is dropped."""
RATES = "rates"
"""Columns of many categories also give rates of the classes."""
RELEVANCE = "relevance"
"""Members choose columns by relevance; without: the first that the model takes."""
CLASSES = "classes"
"""Any number of classes; without: tables of more than the model takes are refused."""


class Step(NamedTuple):
    """What a step adds to the one before.

    Attributes:
        name: Name in the table.
        part: The part of the classifier that it adds, if any.
        arguments: The arguments of the classifier that it sets.
    """

    name: str
    part: str | None = None
    arguments: Mapping[str, Any] = MappingProxyType({})


STEPS = (
    Step("ordinal codes and numbers, first columns"),
    Step("+ categories told apart from numbers", CATEGORIES),
    Step("+ missing values as categories and columns", MISSING),
    Step("+ rates of classes in many categories", RATES),
    Step("+ columns by relevance", RELEVANCE),
    Step("+ many classes: the default", CLASSES),
    Step('+ long_context="auto"', arguments={"long_context": "auto"}),
    Step('+ softmax_temperature="auto"', arguments={"softmax_temperature": "auto"}),
    # Only the state of one long context can be refined.
    Step("+ refine=True", arguments={"refine": True, "long_context": "full"}),
)
"""From first to last; each keeps what those before have added, or sets it anew."""


class Refused(DataError):
    """A table that the classifier refuses without one of its parts."""


class PartialPreprocessor(TablePreprocessor):
    """Encodes tables by some of the parts only.

    Args:
        parts: The parts to use.
        width: Columns that the model takes.
        pairs: Whether columns are compared with each other.
    """

    def __init__(self, parts: frozenset[str], width: int, *, pairs: bool = False) -> None:
        super().__init__(pairs=pairs)
        self._parts, self._width = parts, width

    def _learnt(
        self, frame: pd.DataFrame, labels: npt.NDArray[np.int64] | None
    ) -> tuple[Column, ...]:
        """The columns as the classifier learns them, without what its parts add.

        Raises:
            Refused: No column is left.
        """
        every = super()._learnt(frame, labels)
        columns = tuple(
            self._without_missing(column)
            for column in every
            if not (isinstance(column, RateColumn) and RATES not in self._parts)
        )
        if not _num_used(columns) and _num_used(every):
            raise Refused("No column holds two values besides missing ones; give other columns.")
        return columns

    @property
    def used(self) -> tuple[UsedColumn, ...]:
        """The records of the columns that make up the matrix: without relevance the first ones."""
        every = super().used
        return every if RELEVANCE in self._parts else every[: self._width]

    @property
    def categorical(self) -> npt.NDArray[np.bool_]:
        """For each column of the matrix, whether it is known to hold category codes."""
        holds_codes = super().categorical
        return holds_codes if CATEGORIES in self._parts else np.zeros_like(holds_codes)

    def _without_missing(self, column: Column) -> Column:
        if MISSING in self._parts:
            return column
        reason = "missing values are not told apart"
        if isinstance(column, MissingColumn):
            return DroppedColumn(column.name, column.position, reason)
        if isinstance(column, CategoryColumn):
            if len(column.codes) == 1:
                return DroppedColumn(column.name, column.position, reason)
            return replace(column, missing=None)
        return column


def _num_used(columns: Sequence[Column]) -> int:
    return sum(not isinstance(column, DroppedColumn) for column in columns)


class PartialClassifier(ClassifierMixin, BaseEstimator):
    """The classifier with some of its parts.

    Args:
        parts: The parts to use.
        arguments: Of `TabICLLinearClassifier`.
    """

    def __init__(self, parts: frozenset[str], arguments: dict[str, Any]) -> None:
        self.parts = parts
        self.arguments = arguments

    def fit(self, X: pd.DataFrame, y: npt.NDArray[Any]) -> Self:
        """Fit as the classifier does, on what the parts make of the columns."""
        whole = TabICLLinearClassifier(**self.arguments)
        model = pretrained.load(whole.model)
        self.plan_ = replace(
            checked_plan(whole.get_params(deep=False)),
            new_preprocessor=partial(PartialPreprocessor, self.parts, model.max_columns),
        )
        rows = checked_rows(X, y)
        self.fitted_ = fitting.fit(rows, self.plan_, PretrainedLearners(model))
        self.classes_ = self.fitted_.classes
        return self

    def predict_proba(self, X: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Class probabilities `[rows, classes]`."""
        return self.fitted_.probabilities(computable(X), self.plan_)


def seen(
    parts: frozenset[str],
    model: InContextModel,
    context: pd.DataFrame,
    y: npt.NDArray[Any],
    queries: pd.DataFrame,
) -> str:
    """A checksum of all that the model gets to see of a split.

    Args:
        parts: The parts of the classifier.
        model: The model.
        context: Training rows.
        y: Their labels.
        queries: Rows to predict.

    Raises:
        Refused: The classifier refuses the table without one of the other parts.
    """
    classes, codes = np.unique(y, return_inverse=True)
    limit = model.architecture.num_classes
    if len(classes) > limit and CLASSES not in parts:
        raise Refused(f"The table has {len(classes)} classes and the model takes {limit}.")
    preprocessor = PartialPreprocessor(parts, model.max_columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the fit warns
        matrix = preprocessor.fit_transform(computable(context), codes)
        read = preprocessor.transform(computable(queries))
    digest = hashlib.sha256(repr((matrix.shape, len(classes))).encode())
    for array in (matrix, read, preprocessor.categorical):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]

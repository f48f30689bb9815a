"""Columns of categories, encoded by a number for each category."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.estimator.arrays import BoolArray, FloatArray, IntArray
from tabicl_linear.estimator.columns.category_names import (
    category_names,
    date_of,
    looked_up,
    number_of,
    place_of,
    texts_of,
    warn_of_blanks,
)
from tabicl_linear.estimator.columns.cells import unlike_training
from tabicl_linear.estimator.columns.dropped import CONSTANT, EMPTY, DroppedColumn
from tabicl_linear.estimator.columns.reading import Reading
from tabicl_linear.estimator.columns.target_rates import RateColumn, fit_rates
from tabicl_linear.estimator.notices import brief, warn_user

UNSEEN = -1
MAX_CATEGORIES = 256
FEWEST_KEYS = 20
"""From this number of rows on, a different category in each is worth a warning."""
_KINDS: tuple[tuple[str, Callable[[Any], bool], Callable[[str], bool]], ...] = (
    ("booleans", dtypes.is_bool_dtype, lambda name: name.lower() in ("true", "false")),
    ("numbers", dtypes.is_numeric_dtype, lambda name: number_of(name) is not None),
    ("dates", dtypes.is_datetime64_any_dtype, lambda name: date_of(name) is not None),
)
"""Kinds of cells other than text: their name, whether a dtype holds them, and whether a category is
the text of one."""


@dataclass(frozen=True)
class CategoryColumn:
    """Encodes each category of the training rows by a number.

    Attributes:
        codes: Code (0, 1, ...) of each category (as text).
        other: Code of every other category: -1, or one that rare categories share.
        missing: Code of missing values; None if the training rows had none.
    """

    name: Hashable
    position: int
    kind: Literal["boolean", "categorical"]
    codes: dict[str, int]
    other: int
    missing: int | None

    def encode(self, cells: pd.Series) -> FloatArray:
        """Codes in float64: `other` for unknown categories; NaN if missing values are new."""
        names = category_names(cells, boolean=self.kind == "boolean")
        codes = looked_up(names, self.codes)
        absent = pd.isna(names)
        unknown = np.isnan(codes) & ~absent
        if unknown.any():
            self._refuse_other_kind(cells, names, unknown)
        codes[unknown] = self.other
        if self.missing is not None:
            codes[absent] = self.missing
        return codes

    def _refuse_other_kind(
        self, cells: pd.Series, names: npt.NDArray[Any], unknown: BoolArray
    ) -> None:
        """Raise if cells are booleans, numbers or dates and no training category was.

        Or if the column held booleans in training, and holds something else.
        """
        if self.kind == "boolean":
            # If training rows have only one truth value, the other one is merely new.
            strange = [name for name in names[unknown] if name not in ("False", "True")]
            if strange:
                remedy = "give True, False or a missing value"
                here = f"{brief(strange[0])} here"
                raise unlike_training(self.name, "booleans", here, remedy)
            return
        for what, is_kind, is_one in _KINDS:
            if is_kind(cells.dtype):
                # A category that is a number may be the code of anything.
                if any(is_one(name) or number_of(name) is not None for name in self.codes):
                    return
                training = f"categories such as {brief(next(iter(self.codes)))}"
                here = f"{what} ({names[unknown][0]}) here"
                raise unlike_training(self.name, training, here, "give the categories")


def fit_categories(
    cells: pd.Series, position: int, reading: Reading, labels: IntArray | None
) -> tuple[CategoryColumn | RateColumn | DroppedColumn, ...]:
    """Learn a training column of categories, at `position` in the table.

    With class indices of the rows, many categories are also encoded by class rates.
    """
    assert reading.kind in ("boolean", "categorical")
    name = cells.name
    names = category_names(cells, boolean=reading.kind == "boolean")
    counts = pd.Series(names, dtype=object).value_counts()
    has_gaps = bool(pd.isna(names).any())
    if len(counts) + has_gaps < 2:
        return (DroppedColumn(name, position, CONSTANT if len(counts) else EMPTY),)
    rates = () if labels is None else fit_rates(cells, position, labels)
    categories, other = _in_order(cells, counts), UNSEEN
    what = f"Column {brief(name)} has categories that"
    warn_of_blanks(categories, what, "them, as table[column].str.strip()")
    is_key = len(categories) == counts.sum() >= FEWEST_KEYS
    if is_key:
        _warn_of_key(cells, len(categories))
    if len(categories) + has_gaps > MAX_CATEGORIES:
        # One code is left for all other categories together, and one for missing values.
        other = MAX_CATEGORIES - 1 - has_gaps
        if not rates and not is_key:
            _warn_of_joined(name, len(categories), other)
        rows = counts.to_dict()
        frequent = set(sorted(categories, key=lambda category: -rows[category])[:other])
        categories = [category for category in categories if category in frequent]
    codes = {category: code for code, category in enumerate(categories)}
    missing = max(other, len(codes) - 1) + 1 if has_gaps else None
    return (CategoryColumn(name, position, reading.kind, codes, other, missing), *rates)


def _in_order(cells: pd.Series, counts: pd.Series) -> list[str]:
    """The categories that occur, in the order of a categorical dtype, or numbers before texts."""
    if not isinstance(cells.dtype, pd.CategoricalDtype):
        return sorted(counts.index, key=place_of)
    texts = texts_of(cells.cat.categories, cells.dtype)
    return [text for text in texts if text in counts.index]


def _warn_of_key(cells: pd.Series, count: int) -> None:
    remedy = "drop it, or give what its text is made of as columns"
    if dtypes.is_numeric_dtype(cells.dtype):
        remedy = "leave it out of categorical_features"
    warn_user(
        f"Column {brief(cells.name)} has {count} categories in {count} rows, another one in each, "
        f"which says nothing about other rows: {remedy}."
    )


def _warn_of_joined(name: Hashable, count: int, most: int) -> None:
    warn_user(
        f"Column {brief(name)} has {count} categories in the training rows, in which the classes "
        f"do not differ as far as can be told; the {most} most frequent are kept and the others "
        "share one code. Drop the column if it is an identifier."
    )

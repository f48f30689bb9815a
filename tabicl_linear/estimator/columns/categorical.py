"""Columns of categories: a number for each."""

from collections.abc import Hashable
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
    text_of,
)
from tabicl_linear.estimator.columns.dropped import CONSTANT, EMPTY, DroppedColumn
from tabicl_linear.estimator.columns.reading import Reading, unlike_training
from tabicl_linear.estimator.columns.target_rates import RateColumn, fit_rates
from tabicl_linear.estimator.notices import brief, warn_user

UNSEEN = -1
MAX_CATEGORIES = 256
FEWEST_KEYS = 20
"""Rows of which each has another category, from which on that is a warning."""


@dataclass(frozen=True)
class CategoryColumn:
    """Numbers the categories of the training rows.

    Attributes:
        codes: Category (as text) to code, 0, 1, ...
        other: Code of every other category: -1, or one of its own where rare ones were joined.
        missing: Code where a value is missing; None if none was in the training rows.
    """

    name: Hashable
    position: int
    kind: Literal["boolean", "categorical"]
    codes: dict[str, int]
    other: int
    missing: int | None

    def encode(self, cells: pd.Series) -> FloatArray:
        """Ordinal codes; `other` where the category is unknown, NaN if missing was never seen."""
        names = category_names(cells, boolean=self.kind == "boolean")
        codes = looked_up(names, self.codes)
        absent = pd.isna(names)
        unknown = np.isnan(codes) & ~absent
        self._refuse_other_dtype(cells, names, unknown)
        codes[unknown] = self.other
        if self.missing is not None:
            codes[absent] = self.missing
        return codes

    def _refuse_other_dtype(
        self, cells: pd.Series, names: npt.NDArray[Any], unknown: BoolArray
    ) -> None:
        if not unknown.any():
            return
        first = names[unknown][0]
        if self.kind == "boolean":
            # The other truth value is merely unseen where training rows have only one.
            non_booleans = [name for name in names[unknown] if name not in ("False", "True")]
            if non_booleans:
                other = f"{brief(non_booleans[0])} here"
                remedy = "give True, False or a missing value"
                raise unlike_training(self.name, "booleans", other, remedy)
            return
        if any(number_of(name) is not None for name in self.codes):
            return
        if dtypes.is_bool_dtype(cells.dtype):
            if any(name.lower() in ("true", "false") for name in self.codes):
                return
            holds = "booleans"
        elif dtypes.is_numeric_dtype(cells.dtype):
            holds = "numbers"
        elif dtypes.is_datetime64_any_dtype(cells.dtype):
            if any(date_of(name) is not None for name in self.codes):
                return
            holds = "dates"
        else:
            return
        held = f"categories such as {brief(next(iter(self.codes)))}"
        raise unlike_training(self.name, held, f"{holds} ({first}) here", "give the categories")


def fit_categories(
    cells: pd.Series, position: int, reading: Reading, labels: IntArray | None
) -> tuple[CategoryColumn | RateColumn | DroppedColumn, ...]:
    """Learn a training column of categories; `position` is in the table.

    With class indices of the rows, many categories are also encoded by the rates of the classes.
    """
    assert reading.kind in ("boolean", "categorical")
    name = cells.name
    names = category_names(cells, boolean=reading.kind == "boolean")
    counts = pd.Series(names, dtype=object).value_counts()
    is_missing = bool(pd.isna(names).any())
    if counts.empty:
        return (DroppedColumn(name, position, EMPTY),)
    if len(counts) == 1 and not is_missing:
        return (DroppedColumn(name, position, CONSTANT),)
    if isinstance(cells.dtype, pd.CategoricalDtype):
        categories = [text_of(value) for value in cells.cat.categories]
    else:
        categories = sorted(counts.index, key=place_of)
    categories = [category for category in categories if category in counts.index]
    rates = () if labels is None else fit_rates(cells, position, labels)
    other, is_key = UNSEEN, len(categories) == counts.sum() >= FEWEST_KEYS
    if is_key:
        remedy = "drop it, or give what its text is made of as columns"
        if dtypes.is_numeric_dtype(cells.dtype):
            remedy = "leave it out of categorical_features"
        warn_user(
            f"Column {brief(name)} has {len(categories)} categories in {len(categories)} rows, "
            f"another one in each, which says nothing about other rows: {remedy}."
        )
    if len(categories) + is_missing > MAX_CATEGORIES:
        other = MAX_CATEGORIES - 1 - is_missing
        if not rates and not is_key:
            warn_user(
                f"Column {brief(name)} has {len(categories)} categories in the training rows, in "
                f"which the classes do not differ as far as can be told; the {other} most frequent "
                "are kept and the others share one code. Drop the column if it is an identifier."
            )
        frequent = set(sorted(categories, key=lambda category: -counts[category])[:other])
        categories = [category for category in categories if category in frequent]
    codes = {category: code for code, category in enumerate(categories)}
    missing = max(other, len(codes) - 1) + 1 if is_missing else None
    return (CategoryColumn(name, position, reading.kind, codes, other, missing), *rates)

"""Learns from the training rows how to encode the columns of a table."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import chi2_contingency

from tabicl_linear.estimator.columns.category_names import category_names, place_of, text_of
from tabicl_linear.estimator.columns.encodings import (
    PARTS,
    UNSEEN,
    CategoryColumn,
    Column,
    DroppedColumn,
    MissingColumn,
    NumericColumn,
    Part,
    UsedColumn,
    date_part,
    to_unit,
)
from tabicl_linear.estimator.columns.reading import Reading, numbers, stamps
from tabicl_linear.estimator.columns.target_rates import fit_rates
from tabicl_linear.estimator.notices import warn_user

MAX_CATEGORIES = 256
FEWEST_KEYS = 20
"""Rows of which each has another category, from which on that is a warning."""
MIN_MISSING = 0.05
"""Share of missing values from which a column of its own always says where they are."""
SIGNIFICANCE = 0.01
"""Chance of such a column where fewer values are missing and the classes do not differ."""

Labels: TypeAlias = npt.NDArray[np.int64] | None


def fit_columns(
    cells: pd.Series, position: int, *, reading: Reading, labels: Labels = None
) -> tuple[Column, ...]:
    """Learn how to encode one training column, as one column of numbers or several.

    The series has the label of the column as name, and `position` is that in the table. Without
    class indices of the rows, what needs labels is left out.

    Raises:
        DataError: The column holds dates that cannot be read.
    """
    if reading.kind in ("numeric", "datetime"):
        return _fit_numeric(cells, position, reading, labels)
    return _fit_categories(cells, position, reading, labels)


def _fit_numeric(
    cells: pd.Series, position: int, reading: Reading, labels: Labels
) -> tuple[Column, ...]:
    assert reading.kind in ("numeric", "datetime")
    name = cells.name
    records: list[UsedColumn] = []
    if reading.kind == "numeric":
        values: dict[Part | None, Any] = {None: numbers(cells, reading.text_format)}
    else:
        dates = stamps(cells, reading.text_format)
        values = {part: date_part(dates, part) for part in PARTS}
    absent = np.isnan(next(iter(values.values())))
    if absent.all():
        return (DroppedColumn(name, position, "no training row has a value"),)
    for part, numbers_of_part in values.items():
        present = numbers_of_part[~absent]
        low, high = float(present.min()), float(present.max())
        if high / 2 - low / 2 == 0:
            continue
        unit = to_unit(present, low, high)
        mean, std = float(unit.mean()), float(unit.std())
        records.append(
            NumericColumn(
                name, position, reading.kind, low, high, mean, std, reading.text_format, part
            )
        )
    if absent.any() and (not records or absence_tells(absent, labels)):
        records.append(MissingColumn(name, position, reading.kind, reading.text_format))
    return tuple(records) or (
        DroppedColumn(name, position, "all training rows have the same value"),
    )


def absence_tells(absent: npt.NDArray[np.bool_], labels: Labels) -> bool:
    """Whether a column of its own says which values are missing.

    It does if they are many, or if classes differ in their share by a chi-squared test.
    """
    if absent.mean() >= MIN_MISSING:
        return True
    if labels is None:
        return False
    counts = np.stack(
        [np.bincount(labels[absent == side], minlength=labels.max() + 1) for side in (True, False)]
    )
    return bool(chi2_contingency(counts[:, counts.any(axis=0)]).pvalue < SIGNIFICANCE)


def _fit_categories(
    cells: pd.Series, position: int, reading: Reading, labels: Labels
) -> tuple[Column, ...]:
    assert reading.kind in ("boolean", "categorical")
    name = cells.name
    names = category_names(cells, boolean=reading.kind == "boolean")
    counts = pd.Series(names, dtype=object).value_counts()
    is_missing = bool(pd.isna(names).any())
    if counts.empty:
        return (DroppedColumn(name, position, "no training row has a value"),)
    if len(counts) == 1 and not is_missing:
        return (DroppedColumn(name, position, "all training rows have the same value"),)
    if isinstance(cells.dtype, pd.CategoricalDtype):
        categories = [text_of(value) for value in cells.cat.categories]
    else:
        categories = sorted(counts.index, key=place_of)
    categories = [category for category in categories if category in counts.index]
    rates = () if labels is None else fit_rates(cells, position, labels)
    other, is_key = UNSEEN, len(categories) == counts.sum() >= FEWEST_KEYS
    if is_key:
        warn_user(
            f"Column {name!r} has {len(categories)} categories in {len(categories)} rows, another "
            "one in each, which says nothing about other rows: drop it, or give what its text is "
            "made of as columns."
        )
    if len(categories) + is_missing > MAX_CATEGORIES:
        other = MAX_CATEGORIES - 1 - is_missing
        if not rates and not is_key:
            warn_user(
                f"Column {name!r} has {len(categories)} categories in the training rows, in which "
                f"the classes do not differ as far as can be told; the {other} most frequent are "
                "kept and the others share one code. Drop the column if it is an identifier."
            )
        frequent = sorted(categories, key=lambda category: -counts[category])[:other]
        with_code = set(frequent)
        categories = [category for category in categories if category in with_code]
    codes = {category: code for code, category in enumerate(categories)}
    missing = max(other, len(codes) - 1) + 1 if is_missing else None
    return (CategoryColumn(name, position, reading.kind, codes, other, missing), *rates)

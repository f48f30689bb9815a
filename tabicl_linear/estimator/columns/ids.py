"""Decides whether whole numbers are numbers or names (ids, codes), by the training rows.

Numbers predict the classes by their order, and names one by one. A column of text is read as
whichever predicts left-out rows better. A column of a numeric dtype is always read as numbers; if
it looks like names, a warning tells the user.
"""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.estimator.arrays import FloatArray, IntArray
from tabicl_linear.estimator.columns.cells import are_missing, numbers
from tabicl_linear.estimator.columns.information import judged_rows, p_value_of_rare
from tabicl_linear.estimator.columns.reading import PLAIN_NUMBERS, Reading
from tabicl_linear.estimator.columns.target_rates import of_other_folds, shrunk
from tabicl_linear.estimator.columns.text_formats import are_placeholders
from tabicl_linear.estimator.notices import brief, listed, warn_user

FEWEST_ROWS = 50
"""With fewer rows there is no evidence, and the column is read as numbers."""
MOST_ROWS = 20_000
MOST_DISTINCT = 0.9
"""Maximum of different values per row. With more, nearly every row has its own, which says nothing
about other rows, and the column is read as numbers."""
NUM_BINS = 16
STRENGTHS = (1.0, 10.0, 100.0)
"""Numbers of rows of the mean rate to add to those of a bin or a name; the best one is taken."""
MOST_CLASSES = 8
FEWEST_IDS = 50
"""Columns with fewer different numbers are not taken for ids."""
TIMES_AS_MUCH, LEAST_GAIN = 3.0, 0.01
"""Ids must explain three times as much one by one as by their order, and at least a hundredth of
the squared error."""
SIGNIFICANCE = 0.05
"""Chance that some column is taken for ids in a table of uninformative columns (Bonferroni)."""
MOST_COMMON = 0.5
"""Maximum share of rows with the most frequent number; with more, the column is a count or an
amount that is mostly 0."""

EXACT = 2.0**53
"""From here on, different whole numbers may be the same in float64."""
_EXACT_KINDS = (int, np.integer, Decimal)
"""Types of objects that hold whole numbers of any length."""


def read_whole_numbers_as(cells: pd.Series, labels: IntArray) -> Reading | None:
    """How to read a training column of whole numbers as text; None for other columns or few rows.

    Texts that stand for missing numbers do not count. The note of the reading says why.
    """
    if not (dtypes.is_object_dtype(cells.dtype) or dtypes.is_string_dtype(cells.dtype)):
        return None
    present = ~are_missing(cells)
    present[present] = ~are_placeholders(cells[present])
    texts, labels = cells[present].astype(object), labels[present]
    if len(texts) < FEWEST_ROWS:
        return None
    names, distinct = pd.factorize(texts)
    if not all(map(_is_whole, distinct)):
        return None
    number, name = f"{distinct[0]!r} as a number", f"{distinct[0]!r} as a name"
    if len(distinct) > MOST_DISTINCT * len(texts):
        return PLAIN_NUMBERS._replace(note=f"{number}: nearly all differ")
    values = np.array([float(text) for text in distinct])[names]
    by_order, by_name, by_nothing = _errors(values, names, labels)
    if by_order < min(by_name, by_nothing):
        return PLAIN_NUMBERS._replace(note=f"{number}: their order tells the classes")
    reason = "each tells more than their order" if by_name < by_nothing else "order tells nothing"
    return Reading("categorical", note=f"{name}: {reason}")


def _is_whole(cell: object) -> bool:
    """Whether a cell is text of a whole number, without a sign."""
    return isinstance(cell, str) and cell.strip().isascii() and cell.strip().isdigit()


def count_ids(cells: pd.Series, labels: IntArray, tried: int = 1) -> int | None:
    """How many different numbers a column of a numeric dtype holds, if they look like ids; or None.

    `tried` is how many columns are tested in all: among many, some look like ids by chance.
    """
    if not dtypes.is_numeric_dtype(cells.dtype) or dtypes.is_bool_dtype(cells.dtype):
        return None
    values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    present = np.isfinite(values)
    values, labels = values[present], labels[present]
    if len(values) < FEWEST_ROWS or not (values == values.round()).all():
        return None
    names, distinct = pd.factorize(values)
    is_common = np.bincount(names).max() > MOST_COMMON * len(values)
    if is_common or not FEWEST_IDS <= len(distinct) <= MOST_DISTINCT * len(values):
        return None
    by_order, by_name, by_nothing = _errors(values, names, labels)
    gain = by_nothing - by_name
    least = max(LEAST_GAIN * by_nothing, TIMES_AS_MUCH * (by_nothing - by_order))
    if gain <= least or p_value_of_rare(names, labels) * tried >= SIGNIFICANCE:
        return None
    return len(distinct)


def merged_in_float64(cells: pd.Series) -> tuple[int, int] | None:
    """How many different whole numbers from 2**53 on a column has, and how many float64 leaves.

    None if float64 tells them all apart, as in most columns.
    """
    if dtypes.is_object_dtype(cells.dtype) or dtypes.is_string_dtype(cells.dtype):
        cells = cells.astype(object)
        cells = cells[[isinstance(cell, _EXACT_KINDS) or _is_whole(cell) for cell in cells]]
    elif not dtypes.is_integer_dtype(cells.dtype):
        return None
    values = numbers(cells, PLAIN_NUMBERS.text_format)
    are_large = np.abs(values) >= EXACT
    if not are_large.any():
        return None
    num_integers, num_floats = cells[are_large].nunique(), len(np.unique(values[are_large]))
    return (num_integers, num_floats) if num_floats < num_integers else None


def warn_of_ids(frame: pd.DataFrame, readings: Sequence[Reading], labels: IntArray) -> None:
    """Warn of columns of numbers that look like ids; see `count_ids`."""
    places = [place for place, reading in enumerate(readings) if reading == PLAIN_NUMBERS]
    names = frame.columns.tolist()  # of Python's types, as users have to give them
    ids = {
        names[place]: count
        for place in places
        if (count := count_ids(frame.iloc[:, place], labels, tried=len(places)))
    }
    if ids:
        columns = [f"{brief(name)} ({count:,} different ones)" for name, count in ids.items()]
        warn_user(
            "Whole numbers tell more about the classes one by one than by their order, as ids do, "
            f"in columns {listed(columns)} of {len(frame):,} rows, which are read as numbers: if "
            f"they are ids, give categorical_features={list(ids)!r}."
        )


def warn_of_merged(frame: pd.DataFrame, readings: Sequence[Reading]) -> None:
    """Warn of columns whose different numbers become equal in float64; see `merged_in_float64`."""
    names = frame.columns.tolist()
    merged = {
        names[place]: counts
        for place, reading in enumerate(readings)
        if reading.kind == "numeric" and (counts := merged_in_float64(frame.iloc[:, place]))
    }
    if merged:
        columns = [
            f"{brief(name)} ({num_integers:,} different ones become {num_floats:,})"
            for name, (num_integers, num_floats) in merged.items()
        ]
        warn_user(
            "Whole numbers beyond 2**53 are rounded to float64, in which different ones become "
            f"the same, in columns {listed(columns)}, which are read as numbers: if they are ids, "
            f"give categorical_features={list(merged)!r}."
        )


def _errors(values: FloatArray, names: IntArray, labels: IntArray) -> list[float]:
    """Squared errors on left-out rows, predicted by order, one by one, and by nothing."""
    rows = judged_rows(len(values), MOST_ROWS)
    values, names, labels = values[rows], names[rows], labels[rows]
    edges = np.unique(np.quantile(values, np.arange(1, NUM_BINS) / NUM_BINS))
    groupings = np.searchsorted(edges, values, side="right"), names, np.zeros_like(names)
    return [_error(groups, labels) for groups in groupings]


def _error(groups: IntArray, labels: IntArray) -> float:
    """Squared error of the class rates of groups, cross-fitted, with the best strength."""
    frequent = np.argsort(-np.bincount(labels), kind="stable")[:MOST_CLASSES]
    hits = [(labels == label).astype(np.float64) for label in frequent]
    counts, *sums = of_other_folds(groups, None, *hits)
    total = np.zeros(len(STRENGTHS))
    for hit, hits_of_others in zip(hits, sums, strict=True):
        for place, strength in enumerate(STRENGTHS):
            rates = shrunk(hits_of_others, counts, hit.mean(), strength)
            total[place] += np.square(rates - hit).mean()
    return float(total.min())

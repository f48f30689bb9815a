"""Checks class labels that users give, and reads labels from text."""

import math
import re
import reprlib
from collections.abc import Set
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.extensions import ExtensionDtype
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_unsigned_integer_dtype
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from tabicl_linear.errors import DataError, one_line
from tabicl_linear.estimator.arrays import IntArray
from tabicl_linear.estimator.notices import brief
from tabicl_linear.estimator.rows.frames import from_other_library

MISSING_WORDS = (
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Words that `pandas.read_csv` takes for missing values."""

ANNOUNCE = (
    "announce all classes at the first call, as `partial_fit(X, y, classes=...)`, or fit all rows "
    "anew"
)
"""The remedy that an error names if a class first occurs late."""

LARGEST = 2**63
"""Whole numbers from this on, and below its negative, are no int64."""
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_BOOLEANS = {
    **dict.fromkeys(("True", "TRUE", "true"), True),
    **dict.fromkeys(("False", "FALSE", "false"), False),
}


def checked_labels(y: Any) -> npt.NDArray[Any]:
    """The labels, which may be of any library, as an array of one type.

    Raises:
        DataError: Labels are missing, infinite, of several types, or not class labels; or `y` has
            more than one column.
    """
    y = from_other_library(y)
    try:
        labels = column_or_1d(_as_given(y), warn=True)
    except ValueError as error:
        reason = without_values(error).rstrip(".")
        raise DataError(f"{reason}. Give one class label for each row.") from error
    absent = pd.isna(labels)
    if absent.any():
        raise DataError(
            f"Input y contains NaN: {int(absent.sum())} of {len(labels)} labels are missing; drop "
            "those rows."
        )
    _refuse_unreadable_text(labels)
    try:
        labels = pd.Series(labels).infer_objects().to_numpy()
    except OverflowError:  # pandas 2; whole numbers that are so large stay objects in pandas 3
        labels = np.asarray(labels, dtype=object)
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise DataError("Input y contains infinity; give class labels.")
    if labels.dtype == object:
        _refuse_objects(labels)
    try:
        with np.errstate(invalid="ignore"):  # of casting floats beyond int64
            check_classification_targets(labels)
    except ValueError as error:  # fractions, and floats beyond int64
        unusable = (labels % 1 != 0) | (np.abs(labels) >= LARGEST)
        raise DataError(
            f"{without_values(error)} Labels such as {labels[unusable][0]} are not classes; "
            "give one class per row, for example by cutting numbers into ranges."
        ) from error
    return labels


def announced_classes(classes: Any) -> npt.NDArray[Any]:
    """The different labels among those given as `classes`, sorted.

    Raises:
        DataError: `classes` is not a list, an array or a set of labels; see `checked_labels`.
    """
    labels = list(classes) if isinstance(classes, Set) else classes
    try:
        if np.size(labels) == 0:
            raise DataError("There is none.")
        different = np.unique(checked_labels(labels))
        if len(different) == 1:
            raise DataError("There is one only.")
        return different
    except ValueError as error:  # a DataError, or NumPy's error for lists in lists
        raise DataError(
            f"classes={reprlib.repr(classes)}: {error} Give all class labels, as ['no', 'yes']."
        ) from error


def labels_of_file(column: pd.Series, name: str) -> npt.NDArray[Any]:
    """`checked_labels` of the target column of a file with this name.

    Raises:
        DataError: Labels are missing or cannot be used; the message names the column and the file.
    """
    target, absent = f"Target column {brief(column.name)} of {name}", np.flatnonzero(column.isna())
    if len(absent):
        raise DataError(
            f"{target} is missing in {len(absent)} of {len(column)} rows, first in row "
            f"{absent[0] + 1}; remove those rows."
        )
    try:
        return checked_labels(column)
    except DataError as error:
        raise DataError(f"{target}: {error}") from error


def typed_labels(labels: pd.Series) -> pd.Series:
    """Convert labels that were read as text to integers, decimals or booleans, if all of them are.

    Numbers that would be written differently, such as 007, stay text. So do whole numbers beyond
    int64, of which floats would make several one, and words for missing values, except among
    numbers, where they become missing. Infinity counts as a number: labels with it are refused
    later, like those of a Parquet file, instead of becoming text classes.
    """
    present = labels.dropna().unique().tolist()
    plain = [text for text in present if text not in MISSING_WORDS]
    is_number = bool(plain) and all(
        (_DECIMAL.fullmatch(text) and math.isfinite(float(text))) or _INFINITY.fullmatch(text)
        for text in plain
    )
    if is_number:
        labels = labels.mask(labels.isin(MISSING_WORDS))
        is_whole = all(map(_INTEGER.fullmatch, plain))
        if is_whole and any(abs(int(text)) >= LARGEST for text in plain):
            return labels
        return labels.astype("int64" if is_whole and labels.notna().all() else "float64")
    if present and all(text in _BOOLEANS for text in present) and labels.notna().all():
        return labels.map(_BOOLEANS).astype(bool)
    return labels


def class_codes(
    labels: npt.NDArray[Any], classes: npt.NDArray[Any], remedy: str = ANNOUNCE
) -> IntArray:
    """The index of each label among the classes; raises `DataError` for any other label."""
    codes = _index(classes).get_indexer(_index(labels)).astype(np.int64)
    if (codes < 0).any():
        label, names = as_objects(labels[codes < 0])[0], as_objects(classes)
        if str(label) in map(str, names):
            remedy = "labels and classes are of different types; convert one of them"
        raise DataError(
            f"y holds {label!r}, which is not one of the classes {brief(names)}: {remedy}."
        )
    return codes


def as_objects(labels: npt.NDArray[Any]) -> list[Any]:
    """Labels as Python objects, made by pandas: NumPy turns dates in nanoseconds into integers."""
    return pd.Series(labels).tolist()


def _as_given(y: Any) -> Any:
    """Labels that keep their types: NumPy makes NaN in lists text, and nullable integers floats."""
    if isinstance(y, list | tuple) and len({type(label) for label in y}) > 1:
        return pd.Series(list(y), dtype=object).to_numpy()
    dtype = getattr(y, "dtype", None)
    if isinstance(dtype, ExtensionDtype) and not pd.isna(y).any():
        if is_bool_dtype(dtype):
            return np.asarray(y, dtype=bool)
        if is_integer_dtype(dtype):
            is_unsigned = is_unsigned_integer_dtype(dtype)
            return np.asarray(y, dtype=np.uint64 if is_unsigned else np.int64)
    return y


def _index(labels: npt.NDArray[Any]) -> pd.Index:
    # pandas has no float16 index.
    return pd.Index(labels.astype(np.float32) if labels.dtype == np.float16 else labels)


def _refuse_unreadable_text(labels: npt.NDArray[Any]) -> None:
    if labels.dtype.kind not in "OSU":
        return
    for label in labels.tolist():
        if isinstance(label, bytes):
            raise DataError(
                f"y holds bytes, such as {brief(label)}; give text, as by label.decode() for each."
            )
        try:
            if isinstance(label, str):
                label.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"y holds {brief(label)}, which is no Unicode text ({error.reason}); give "
                'label.encode("utf-8", "replace").decode() for each label.'
            ) from error


def _refuse_objects(labels: npt.NDArray[Any]) -> None:
    kinds = {"str" if isinstance(label, str) else type(label).__name__ for label in labels}
    if len(kinds) > 1:
        raise DataError(
            f"y mixes labels of types {' and '.join(sorted(kinds))}; make them one type, for "
            "example text: [str(label) for label in y]."
        )
    if kinds != {"str"}:
        raise DataError(
            f"y holds labels of type {kinds.pop()}, such as {reprlib.repr(labels.tolist()[0])}; "
            "make them text, integers or booleans, for example [str(label) for label in y]."
        )


def without_values(error: Exception) -> str:
    """The error's message in one line, without the values that scikit-learn prints inside it."""
    return one_line(re.sub(r"(array=)?\[.*\]\.?", "", str(error), flags=re.DOTALL))

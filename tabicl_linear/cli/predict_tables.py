"""Reads the tables of `tabicl-linear predict`, and checks them against each other."""

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.cli.date_text import read_dates_of
from tabicl_linear.errors import DataError, counted
from tabicl_linear.estimator.notices import brief, check_columns, listed, shown, warn_user
from tabicl_linear.estimator.rows.labels import labels_of_file, typed_labels
from tabicl_linear.estimator.rows.table_file import TableFile, is_text

if TYPE_CHECKING:
    from tabicl_linear.estimator.classifier import TabICLLinearClassifier

UNNAMED = re.compile(r"Unnamed: \d+")
"""Pattern of the names that pandas gives to columns without one, by position."""
MIN_ROW_NUMBERS = 30
"""Fewest rows for which a column of consecutive integers is taken for row numbers."""


class PredictionTables(NamedTuple):
    """What `predict` reads from two files; `train` and `test` have the same columns.

    Attributes:
        train: Features to learn from.
        labels: Labels of the rows of `train`.
        test: Features of the rows to predict.
        ids: Columns that identify the rows to predict; none if none were asked for.
    """

    train: pd.DataFrame
    labels: pd.Series
    test: pd.DataFrame
    ids: pd.DataFrame


def read_tables(
    train_file: TableFile,
    test_file: TableFile,
    target: str,
    *,
    id_columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    dates: Sequence[str] = (),
) -> PredictionTables:
    """Read both files, and check that they fit together before anything is computed.

    Warns of columns that look like row numbers, and of a last row to predict that is blank.

    Args:
        train_file: The labelled table.
        test_file: The table to predict.
        target: Name of the label column.
        id_columns: Columns that identify rows: copied to the output, not used as features.
        drop: Columns to leave out.
        categorical: Columns of numbers to read as categories.
        dates: Text columns to read as dates.

    Returns:
        The tables. Columns that have neither a name nor a value are left out.

    Raises:
        DataError: A file cannot be read, or columns or labels are missing.
    """
    train = train_file.frame()
    # A text column of TRAIN is read as text in TEST, too, even if all its cells look like numbers
    # there: 007 must not become 7.
    test = test_file.frame([name for name in train.columns if is_text(train[name])])
    warn_of_blank_end(test, test_file.name)
    train_file.require(target)
    _check_named_once(target, id_columns, drop)
    labels = _labels(train[target], train_file, id_columns)
    _require(id_columns, test, test_file, "--id-columns")
    _require([name for name in drop if name not in test], train, train_file, "--drop")
    _require(dates, train, train_file, "--dates")
    ids = test[list(dict.fromkeys(id_columns))]
    left_out = [target, *id_columns, *drop]
    train = _without_blank_columns(train.drop(columns=left_out, errors="ignore"), train_file.name)
    test = _without_blank_columns(test.drop(columns=left_out, errors="ignore"), test_file.name)
    if train.shape[1] == 0:
        raise DataError(
            f"{train_file.name} has no column besides the target {brief(target)} and those "
            "left out; add some."
        )
    check_columns(
        list(test.columns),
        list(train.columns),
        whose=train_file.name,
        these=f"The columns of {test_file.name}",
        hint=", or leave some out by --drop or --id-columns",
    )
    _require(categorical, train, train_file, "--categorical")
    for name in (name for name in dates if name in train):
        columns = [(train_file.name, train[name]), (test_file.name, test[name])]
        if not all(dtypes.is_datetime64_any_dtype(column.dtype) for _, column in columns):
            train[name], test[name] = read_dates_of(columns, name)
    _warn_of_row_numbers(train, train_file.name, "name such columns in --id-columns or --drop")
    return PredictionTables(train, labels, test, ids)


def warn_of_blank_end(test: pd.DataFrame, name: str) -> None:
    """Warn if the last row to predict is blank, as spreadsheets may write lines of only commas."""
    if test.iloc[-1].isna().all():
        warn_user(
            f"{name}: the last row has no value. It is predicted as any other; remove its line if "
            "there is no such row."
        )


def _without_blank_columns(table: pd.DataFrame, file: str) -> pd.DataFrame:
    """The table without columns that have neither a name nor a value."""
    blank = [name for name in table if UNNAMED.fullmatch(name) and table[name].isna().all()]
    if blank:
        warn_user(
            f"{file} has columns without a name and a value, as if lines ended with a comma, which "
            f"are left out: {listed(map(brief, blank))}."
        )
    return table.drop(columns=blank)


def feature_names(train: TableFile, target: str, columns: Iterable[str], name: str) -> list[str]:
    """The columns of a table to predict, without the target, checked against those of TRAIN.

    Warns of columns that look like row numbers in the first rows of TRAIN.

    Args:
        train: The labelled table.
        target: Name of the label column.
        columns: All columns of the table to predict.
        name: What messages call the table to predict.

    Raises:
        DataError: The columns differ from those of TRAIN, or TRAIN has no target.
    """
    train.require(target)
    names = [column for column in columns if column != target]
    features = [column for column in train.columns if column != target]
    is_unnamed = any(UNNAMED.fullmatch(str(column)) for column in (*names, *features))
    hint = "; a comma at the end of each line makes a column without a name" if is_unnamed else ""
    these = f"The columns of {name}"
    check_columns(names, features, whose=train.name, these=these, hint=hint)
    with closing(train.pieces(features, texts=())) as pieces:
        for first in islice(pieces, 1):
            _warn_of_row_numbers(first, train.name, "leave such columns out of both tables")
    return names


def summary(train: str, classifier: "TabICLLinearClassifier", output: Path, num_rows: int) -> str:
    """A line that says what was read from the file `train`, and how many rows were written."""
    return (
        f"read {train}: {counted(classifier.n_samples_seen_, 'row')}, "
        f"{counted(classifier.n_features_in_, 'column')}, "
        f"classes {shown(list(classifier.classes_))}; "
        f"wrote {output}: {counted(num_rows, 'row')}"
    )


def with_predictions(
    ids: pd.DataFrame,
    classes: npt.NDArray[Any],
    probabilities: npt.NDArray[np.float64],
    label_type: Any,
) -> pd.DataFrame:
    """The output table: identifiers, `prediction`, and `proba_<label>` for each class.

    Args:
        ids: Columns that identify the rows; may have no columns.
        classes: Labels of the classes.
        probabilities: Of each class, `[rows, classes]`.
        label_type: Dtype of the column `prediction`.
    """
    predictions = pd.Series(classes[probabilities.argmax(axis=1)], index=ids.index)
    columns = {"prediction": predictions.astype(label_type)}
    for label, column in zip(classes, probabilities.T, strict=True):
        columns[f"proba_{label}"] = pd.Series(column, index=ids.index)
    return pd.concat([ids, pd.DataFrame(columns)], axis=1)


def _check_named_once(target: str, id_columns: Sequence[str], drop: Sequence[str]) -> None:
    twice = [name for name in id_columns if name in drop]
    if twice:
        raise DataError(
            f"--id-columns {twice[0]} is also in --drop; name it once: in --id-columns to keep "
            "it in the output, in --drop to leave it out."
        )
    if target in (*id_columns, *drop):
        raise DataError(f"--target {target} is also in --id-columns or --drop; name it once.")


def _labels(labels: pd.Series, file: TableFile, id_columns: Sequence[str]) -> pd.Series:
    """The labels, checked, with the types of numbers parsed if the file is text."""
    if not file.is_typed:
        labels = typed_labels(labels)
    labels_of_file(labels, file.name)
    columns_of_output = {"prediction", *(f"proba_{label}" for label in labels.unique())}
    clash = [name for name in id_columns if name in columns_of_output]
    if clash:
        raise DataError(
            f"--id-columns {clash[0]}: the output has a column of this name; rename it."
        )
    return labels


def _require(names: Sequence[str], table: pd.DataFrame, file: TableFile, option: str) -> None:
    for name in names:
        if name not in table.columns:
            raise DataError(
                f"{option} {name}: {file.name} has no such column; it has "
                f"{shown(list(table.columns))}."
            )


def _warn_of_row_numbers(table: pd.DataFrame, name: str, remedy: str) -> None:
    suspects = _row_numbers(table)
    if suspects:
        columns = listed(map(brief, suspects))
        warn_user(f"{name} has columns that look like row numbers: {columns}; {remedy}.")


def _row_numbers(table: pd.DataFrame) -> list[str]:
    """Columns that look like row numbers: those without a name, or of consecutive integers."""

    def are_counted(column: pd.Series) -> bool:
        return (
            len(column) >= MIN_ROW_NUMBERS
            and dtypes.is_integer_dtype(column.dtype)
            and not column.isna().any()
            and bool((column.diff().iloc[1:] == 1).all())
        )

    return [name for name in table if UNNAMED.fullmatch(name) or are_counted(table[name])]

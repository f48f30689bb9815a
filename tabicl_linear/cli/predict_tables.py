"""The tables of `tabicl-linear predict`: read, and checked against each other."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.cli.date_text import dates
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.notices import difference, shown
from tabicl_linear.estimator.rows.labels import checked_labels, typed_labels
from tabicl_linear.estimator.rows.table_file import TableFile, TextFormat, is_text

MIN_ROW_NUMBERS = 30
"""Consecutive integers that are no coincidence."""


@dataclass(frozen=True)
class TableOptions:
    """What the columns of TRAIN and TEST are.

    Attributes:
        target: Column of the labels.
        id_columns: Columns that identify rows: never features, kept in the output.
        drop: Columns to leave out.
        categorical: Columns to read as categories.
        dates: Columns of dates that are written as text.
        sep: Character between fields of CSV and TSV files; None for the usual one.
        encoding: Of their text.
        na_values: Further texts that are missing values.
    """

    target: str
    id_columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    dates: Sequence[str] = ()
    sep: str | None = None
    encoding: str = "utf-8"
    na_values: Sequence[str] = ()

    @property
    def text(self) -> TextFormat:
        """How text is read: identifiers and labels as they are written."""
        as_written = (*self.id_columns, self.target)
        return TextFormat(self.sep, self.encoding, self.na_values, as_written)


@dataclass(frozen=True)
class PredictionTables:
    """Rows to learn from and rows to predict, with the same feature columns.

    Attributes:
        train: Features of the labelled rows.
        labels: Their labels, without missing ones.
        test: Features of the rows to predict.
        ids: Identifiers of the rows to predict; no columns if none were asked for.
    """

    train: pd.DataFrame
    labels: pd.Series
    test: pd.DataFrame
    ids: pd.DataFrame


def read_tables(train_path: Path, test_path: Path, options: TableOptions) -> PredictionTables:
    """Read both files and find what does not fit together before anything is computed.

    Warns of columns that look like row numbers.

    Raises:
        DataError: A file cannot be read, a column is missing, or labels are.
    """
    train_file, test_file = (TableFile(path, options.text) for path in (train_path, test_path))
    train = train_file.frame()
    # A column of texts in TRAIN may hold in TEST what looks like numbers, where 007 would be 7.
    test = test_file.frame([name for name in train.columns if is_text(train[name])])
    labels = _labels(train, train_file, options)
    _require(options.id_columns, test, test_file, "--id-columns")
    _require([name for name in options.drop if name not in test], train, train_file, "--drop")
    _require(options.dates, train, train_file, "--dates")
    ids = test[list(dict.fromkeys(options.id_columns))]
    left_out = [options.target, *options.id_columns, *options.drop]
    train = train.drop(columns=left_out, errors="ignore")
    test = test.drop(columns=left_out, errors="ignore")
    if train.shape[1] == 0:
        raise DataError(
            f"{train_file.name} has no column besides the target {options.target!r} and those "
            "left out; add some."
        )
    check_columns(
        list(train.columns),
        list(test.columns),
        files=(train_file.name, test_file.name),
        hint=", or leave some out by --drop or --id-columns",
    )
    _require(options.categorical, train, train_file, "--categorical")
    for name in (name for name in options.dates if name in train):
        columns = [(train_file.name, train[name]), (test_file.name, test[name])]
        if not all(dtypes.is_datetime64_any_dtype(column.dtype) for _, column in columns):
            train[name], test[name] = dates(columns, name)
    suspects = _row_numbers(train)
    if suspects:
        warnings.warn(
            f"{train_file.name}: {', '.join(repr(name) for name in suspects)} looks like row "
            "numbers; name such columns in --id-columns or --drop.",
            UserWarning,
            stacklevel=2,
        )
    return PredictionTables(train, labels, test, ids)


def with_predictions(
    ids: pd.DataFrame,
    classes: npt.NDArray[Any],
    probabilities: npt.NDArray[np.float64],
    label_type: Any,
) -> pd.DataFrame:
    """The output: identifiers, `prediction` in the type of the labels, `proba_<label>` ...

    `probabilities` are `[rows, classes]`; `ids` has no columns if no identifiers were asked for.
    """
    predictions = pd.Series(classes[probabilities.argmax(axis=1)], index=ids.index)
    columns = {"prediction": predictions.astype(label_type)}
    for label, column in zip(classes, probabilities.T, strict=True):
        columns[f"proba_{label}"] = pd.Series(column, index=ids.index)
    return pd.concat([ids, pd.DataFrame(columns)], axis=1)


def check_columns(
    train: Sequence[str], test: Sequence[str], *, files: tuple[str, str], hint: str = ""
) -> None:
    """Check, before the fit, that two tables have the same columns besides the target.

    `files` are their names and `hint` says what else can be done, both for the message.

    Raises:
        DataError: The columns differ.
    """
    differences = difference(train, test)
    if differences:
        raise DataError(
            f"The columns of {files[1]} differ from those of {files[0]}: {differences}. Give the "
            f"same columns in any order{hint}."
        )


def _labels(train: pd.DataFrame, file: TableFile, options: TableOptions) -> pd.Series:
    target = options.target
    if target not in train.columns:
        hint = "" if options.sep or file.is_typed else "; another separator is given by --sep"
        raise DataError(
            f"{file.name} has no target column {target!r}; its columns (commas separate them) "
            f"are {shown(file.columns)}{hint}."
        )
    twice = [name for name in options.id_columns if name in options.drop]
    if twice:
        raise DataError(
            f"--id-columns {twice[0]} is also in --drop; name it once: in --id-columns to keep "
            "it in the output, in --drop to leave it out."
        )
    if target in (*options.id_columns, *options.drop):
        raise DataError(f"--target {target} is also in --id-columns or --drop; name it once.")
    labels = train[target]
    if not file.is_typed:
        labels = typed_labels(labels)
    absent = int(labels.isna().sum())
    if absent:
        raise DataError(
            f"Target column {target!r} of {file.name} is missing in {absent} of {len(labels)} "
            "rows; remove those rows."
        )
    checked_labels(labels)
    columns_of_output = {"prediction", *(f"proba_{label}" for label in labels.unique())}
    clash = [name for name in options.id_columns if name in columns_of_output]
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


def _row_numbers(table: pd.DataFrame) -> list[str]:
    """Columns that look like numbers of rows: without a name, or consecutive integers."""
    names = []
    for name, column in table.items():
        is_count = (
            len(column) >= MIN_ROW_NUMBERS
            and dtypes.is_integer_dtype(column.dtype)
            and not column.isna().any()
            and bool((column.diff().iloc[1:] == 1).all())
        )
        if is_count or re.fullmatch(r"Unnamed: \d+", str(name)):
            names.append(str(name))
    return names

"""The tables of `tabicl-linear predict`: read, and checked against each other."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api import types as dtypes

from tabicl_linear.cli.cell_text import (
    dates,
    numbers_with_marks,
    row_numbers,
    without_marks,
)
from tabicl_linear.cli.table_files import (
    PARQUET,
    STANDARD_INPUT,
    ReadOptions,
    name_of,
    read_table,
    suffix_of,
)
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.files import is_text
from tabicl_linear.estimator.rows.label_text import typed_labels
from tabicl_linear.estimator.rows.labels import checked_labels


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
    def reading(self) -> ReadOptions:
        """How files are read: identifiers and labels as they are written."""
        as_text = (*self.id_columns, self.target)
        return ReadOptions(self.sep, self.encoding, self.na_values, as_text)


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
    train = read_table(train_path, options.reading)
    # A column of texts in TRAIN may hold in TEST what looks like numbers, where 007 would be 7.
    texts = [name for name in train.columns if is_text(train[name])]
    test = read_table(test_path, replace(options.reading, texts=texts))
    labels = _labels(train, train_path, options)
    _require(options.id_columns, test, test_path, "--id-columns")
    _require([name for name in options.drop if name not in test], train, train_path, "--drop")
    _require(options.dates, train, train_path, "--dates")
    ids = test[list(dict.fromkeys(options.id_columns))]
    left_out = [options.target, *options.id_columns, *options.drop]
    train = train.drop(columns=left_out, errors="ignore")
    test = test.drop(columns=left_out, errors="ignore")
    if train.shape[1] == 0:
        raise DataError(
            f"{name_of(train_path)} has no column besides the target {options.target!r} and those "
            "left out; add some."
        )
    _compare(train, test, train_path, test_path)
    _require(options.categorical, train, train_path, "--categorical")
    for name in train.columns:
        train[name], test[name] = _cells(name, train, test, train_path, test_path, options)
    suspects = row_numbers(train)
    if suspects:
        warnings.warn(
            f"{name_of(train_path)}: {', '.join(repr(name) for name in suspects)} looks like row "
            "numbers; name such columns in --id-columns or --drop.",
            UserWarning,
            stacklevel=2,
        )
    return PredictionTables(train, labels, test, ids)


def with_predictions(
    tables: PredictionTables, classes: npt.NDArray[Any], probabilities: npt.NDArray[np.float64]
) -> pd.DataFrame:
    """The output: identifiers, `prediction` in the type of the labels, `proba_<label>` ...

    Raises:
        DataError: An identifier has the name of one of these columns.
    """
    predicted = pd.Series(classes[probabilities.argmax(axis=1)], index=tables.ids.index)
    columns = {"prediction": predicted.astype(tables.labels.dtype)}
    for index, label in enumerate(classes):
        columns[f"proba_{label}"] = pd.Series(probabilities[:, index], index=predicted.index)
    return pd.concat([tables.ids, pd.DataFrame(columns)], axis=1)


def shown(names: Sequence[Any] | pd.Index, most: int = 10) -> str:
    """The first names, and how many more there are."""
    first = ", ".join(str(name) for name in list(names)[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"


def _labels(train: pd.DataFrame, path: Path, options: TableOptions) -> pd.Series:
    target = options.target
    if target not in train.columns:
        hint = "" if options.sep or _is_parquet(path) else "; another separator is given by --sep"
        raise DataError(
            f"{name_of(path)} has no target column {target!r}; its columns (commas separate them) "
            f"are {shown(train.columns)}{hint}."
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
    if not _is_parquet(path):
        labels = typed_labels(labels)
    absent = int(labels.isna().sum())
    if absent:
        raise DataError(
            f"Target column {target!r} of {name_of(path)} is missing in {absent} of {len(labels)} "
            "rows; remove those rows."
        )
    checked_labels(labels)
    taken = {"prediction", *(f"proba_{label}" for label in labels.unique())}
    clash = [name for name in options.id_columns if name in taken]
    if clash:
        raise DataError(
            f"--id-columns {clash[0]}: the output has a column of this name; rename it."
        )
    return labels


def _require(names: Sequence[str], table: pd.DataFrame, path: Path, option: str) -> None:
    for name in names:
        if name not in table.columns:
            raise DataError(
                f"{option} {name}: {name_of(path)} has no such column; it has "
                f"{shown(table.columns)}."
            )


def _compare(train: pd.DataFrame, test: pd.DataFrame, train_path: Path, test_path: Path) -> None:
    lacking = [name for name in train.columns if name not in set(test.columns)]
    extra = [name for name in test.columns if name not in set(train.columns)]
    if lacking or extra:
        parts = [f"missing {shown([repr(name) for name in lacking])}"] if lacking else []
        parts += [f"unknown {shown([repr(name) for name in extra])}"] if extra else []
        raise DataError(
            f"The columns of {name_of(test_path)} differ from those of {name_of(train_path)}: "
            f"{'; '.join(parts)}. Give the same columns in any order, or leave some out by --drop "
            "or --id-columns."
        )


def _cells(
    name: str,
    train: pd.DataFrame,
    test: pd.DataFrame,
    train_path: Path,
    test_path: Path,
    options: TableOptions,
) -> tuple[pd.Series, pd.Series]:
    """A column of both tables as numbers, dates or what it is."""
    learnt, asked = train[name], test[name]
    if name in options.dates:
        if all(dtypes.is_datetime64_any_dtype(column.dtype) for column in (learnt, asked)):
            return learnt, asked
        learnt, asked = dates([(name_of(train_path), learnt), (name_of(test_path), asked)], name)
        return learnt, asked
    if not _is_parquet(train_path):
        learnt = numbers_with_marks(learnt)
    if not _is_parquet(test_path) and dtypes.is_numeric_dtype(learnt.dtype):
        asked = without_marks(asked)
    return learnt, asked


def _is_parquet(path: Path) -> bool:
    return path != STANDARD_INPUT and suffix_of(path) == PARQUET

"""Tables larger than memory: `fit` from pieces or from a file."""

import os
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arguments import refuse, threads
from tabicl_linear.estimator.base import EnsembleClassifier
from tabicl_linear.estimator.class_weights import class_weights
from tabicl_linear.estimator.ensemble import progress_bar
from tabicl_linear.estimator.labels import checked_labels, class_codes
from tabicl_linear.estimator.pieces import Pieces, checked_pieces, joined
from tabicl_linear.estimator.preprocessing import Table, TablePreprocessor
from tabicl_linear.estimator.stored_rows import stored
from tabicl_linear.estimator.table_file import TableFile

FIRST_ROWS = 50_000
"""Columns are learnt from the first pieces that have this many rows together."""


class StreamedClassifier(EnsembleClassifier):
    """Adds tables that come in pieces to `fit`."""

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> Self:
        """Read the training table into the learner's states.

        A call that fails leaves the classifier as it was. A table larger than memory may be given
        as an iterator of pieces or as a file: the first 50,000 rows teach what the columns are
        (docs/growing.md), and memory does not grow with the number of rows. What a model that does
        not read causally needs of all rows is kept in temporary files meanwhile (in TMPDIR), with
        the encoded table.

        Args:
            X: Table `[rows, columns]`: array, frame or nested list; may hold missing values. Or an
                iterator of pairs (X, y) of such pieces, or the path of a CSV or Parquet file.
            y: Class labels of the rows; for a file the name of the column that holds them; left
                out for an iterator.
            **unsupported: None; `sample_weight` is refused with the reason.

        Raises:
            TypeError: Another argument was given.
            DataError: The table or the labels cannot be used: only one class, more classes than
                the learner takes, missing labels, columns that cannot be read, or pieces whose
                columns are not those of the first.
            ConfigError: A constructor argument is out of range.
            CheckpointError: The model cannot be loaded.
        """
        refuse(unsupported)
        if isinstance(X, str | os.PathLike):
            self._check_arguments()
            pieces, classes, rows = _labelled(TableFile(Path(X)), y)
        elif isinstance(X, Iterator):
            if y is not None:
                raise DataError("An iterator gives pairs (X, y) of pieces: leave y out.")
            pieces, classes, rows = checked_pieces(X), None, None
        else:
            return super().fit(X, y)
        self._check_arguments()
        with self._kept_on_errors(), progress_bar("read", rows, self.verbose > 0) as bar:
            self._fit_pieces(_counted(pieces, bar), classes)
        return self

    def _fit_pieces(self, pieces: Pieces, classes: npt.NDArray[Any] | None) -> None:
        """Fit on all pieces.

        Args:
            pieces: Rows and labels.
            classes: All classes, where they are known beforehand.
        """
        (X, y), rest = first_rows(pieces)
        following = next(rest, None)
        if following is None:
            self._fit(X, y)
        else:
            self._fit_spilled(chain([(X, y), following], rest), classes)

    def _fit_spilled(self, pieces: Pieces, classes: npt.NDArray[Any] | None) -> None:
        """Fit on all pieces at once, from the encoded table in a temporary file."""
        folder, temperature = Path(tempfile.gettempdir()), self._fixed_temperature
        labels: list[npt.NDArray[Any]] = []
        X, y = next(pieces)
        table = self._validated(X, y, reset=True)
        # Without labels it has no rates of classes, which would tell the labels of the first rows.
        preprocessor = TablePreprocessor(self.categorical_features).fit(table)
        self.preprocessor_ = preprocessor  # `_validated` aligns columns with it

        def encoded() -> Iterator[npt.NDArray[np.float32]]:
            for rows, answers in chain([(table, y)], pieces):
                checked = self._validated(rows, answers, reset=False)
                # The codes of a long table are smaller than its labels.
                labels.append(answers if classes is None else class_codes(answers, classes))
                yield preprocessor.transform(checked)

        matrix = stored(encoded(), len(preprocessor.used), folder)
        if classes is None:
            classes, codes = np.unique(_joined_labels(labels), return_inverse=True)
        else:
            codes = np.concatenate(labels)
        if len(classes) < 2:
            raise DataError(
                f"y holds one class only ({classes.tolist()[0]!r}): give training rows of at least "
                "two."
            )
        learner = self._make_learner(len(classes)).to(self._resolved_device())
        class_weights(self.class_weight, classes, np.bincount(codes, minlength=len(classes)))
        seed = self._seed()
        learner = self._suited(learner, codes, None, seed)
        with threads(self.n_jobs):
            ensemble = self._members(learner, preprocessor, matrix, codes, seed, spill=folder)
        self._set_fitted(preprocessor, ensemble, classes, codes, temperature)


def first_rows(pieces: Pieces) -> tuple[tuple[Table, npt.NDArray[Any]], Pieces]:
    """The first pieces joined until they have `FIRST_ROWS` rows, and the iterator of the others.

    Raises:
        DataError: There is no piece, or the pieces cannot be joined.
    """
    tables, labels, count = list[Any](), list[npt.NDArray[Any]](), 0
    for X, y in pieces:
        tables.append(X)
        labels.append(y)
        count += len(y)
        if count >= FIRST_ROWS:
            break
    if not tables:
        raise DataError("The iterator gave no piece; give at least one pair (X, y).")
    return (joined(tables), _joined_labels(labels)), pieces


def _joined_labels(labels: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Labels of all pieces, of one type; NumPy would make text of numbers among texts."""
    if len({part.dtype.kind for part in labels}) > 1:
        labels = [part.astype(object) for part in labels]
    return checked_labels(np.concatenate(labels))


def _counted(pieces: Pieces, bar: tqdm) -> Pieces:
    """The pieces, with progress once each has been used."""
    for X, y in pieces:
        yield X, y
        bar.update(len(y))


def _labelled(file: TableFile, target: Any) -> tuple[Pieces, npt.NDArray[Any], int]:
    """The pieces of a file without the target, their labels, all classes and the number of rows."""
    if not isinstance(target, str):
        raise DataError(f"y={target!r}: for a file, give the name of the column with the labels.")
    column = file.labels(target)
    absent = int(column.isna().sum())
    if absent:
        raise DataError(
            f"Target column {target!r} of {file.path} is missing in {absent} of {len(column)} "
            "rows; remove those rows."
        )
    if len(column) == 0:
        raise DataError(f"{file.path} has a header but no rows; give at least one row.")
    names = [name for name in file.columns if name != target]
    if not names:
        raise DataError(f"{file.path} has no column besides the target {target!r}; add some.")
    classes, codes = np.unique(checked_labels(column), return_inverse=True)

    def pieces() -> Pieces:
        start = 0
        for table in file.pieces(names):
            yield table, classes[codes[start : start + len(table)]]
            start += len(table)

    return pieces(), classes, len(column)

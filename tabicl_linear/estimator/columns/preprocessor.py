"""Turns a user's table into a float32 matrix, by what was learnt from the training rows."""

import copy
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arrays import BoolArray, Float32Array, IntArray
from tabicl_linear.estimator.columns.categorical import CategoryColumn, fit_categories
from tabicl_linear.estimator.columns.category_names import category_names
from tabicl_linear.estimator.columns.cells import stamps
from tabicl_linear.estimator.columns.counted_rates import CountedRateColumn
from tabicl_linear.estimator.columns.declared import CategoricalFeatures, are_declared
from tabicl_linear.estimator.columns.dropped import CONSTANT, EMPTY, DroppedColumn
from tabicl_linear.estimator.columns.ids import read_whole_numbers_as, warn_of_ids, warn_of_merged
from tabicl_linear.estimator.columns.joint_rates import JointRateColumn, fit_joint_rates
from tabicl_linear.estimator.columns.linear_scores import LinearScores, fit_scores
from tabicl_linear.estimator.columns.numeric import MissingColumn, NumericColumn, fit_numeric
from tabicl_linear.estimator.columns.pairs import PairColumn, fit_pairs
from tabicl_linear.estimator.columns.reading import PLAIN_NUMBERS, Reading, read_as
from tabicl_linear.estimator.columns.target_rates import RateColumn
from tabicl_linear.estimator.columns.text_formats import TIMES
from tabicl_linear.estimator.columns.time_zones import have_zones
from tabicl_linear.estimator.notices import brief, check_columns, listed, warn_user

OVERRULE = " A numeric dtype makes numbers of names, and categorical_features names of numbers."

OneColumn: TypeAlias = (
    NumericColumn | MissingColumn | CategoryColumn | RateColumn | CountedRateColumn
)
TwoColumns: TypeAlias = PairColumn | JointRateColumn
UsedColumn: TypeAlias = OneColumn | TwoColumns
Column: TypeAlias = UsedColumn | DroppedColumn
Table: TypeAlias = pd.DataFrame | npt.NDArray[Any]


class TablePreprocessor:
    """Encodes tables: numbers and parts of dates as z-scores, everything else as category codes.

    There may be further encodings: of columns with many categories, by the rates of the classes in
    them; of columns of numbers or dates, by where values are missing; and of pairs of columns, by
    comparing them and by the rates of the classes in the categories of both.

    Args:
        categorical_features: Columns to read as categories whatever they hold, as positions,
            names or one boolean per column. None: the content decides.
        pairs: Whether pairs of columns are encoded, too.

    Attributes:
        columns: Records of the columns of the training table, in its order, including those of
            dropped columns; a column may have several. Records of two columns come last.
        linear_scores: What all columns of a wide table say together, as the last columns of the
            matrix; None for narrower tables.
    """

    columns: tuple[Column, ...]
    linear_scores: LinearScores | None = None  # files of earlier versions have none
    _labels: list[Hashable] | None  # names of the columns; saved files have this name

    def __init__(
        self, categorical_features: CategoricalFeatures = None, *, pairs: bool = False
    ) -> None:
        self.categorical_features = categorical_features
        self.pairs = pairs

    def fit(self, table: Table, labels: IntArray | None = None) -> "TablePreprocessor":
        """Learn every column from the training rows (see `fit_transform`)."""
        self.fit_transform(table, labels)
        return self

    def fit_transform(
        self, table: Table, labels: IntArray | None = None, *, is_provisional: bool = False
    ) -> Float32Array:
        """Learn every column, and return the matrix of the training rows.

        `labels` are class indices of the rows. Without them, columns of many categories get no
        rates, a few missing values get no column, and wide tables get no scores. With
        `is_provisional`, columns will be learnt again from more rows, so none has to vary yet.

        The matrix differs from that of `transform` in class rates and scores: here those of a row
        leave out the row itself (and its fold), since they would contain its label.

        Raises:
            DataError: A column cannot be encoded, a declared categorical column does not exist, or
                no column varies.
        """
        self._labels = list(table.columns) if isinstance(table, pd.DataFrame) else None
        frame = self.framed(table)
        self.columns, self.linear_scores = self._learnt(frame, labels), None
        if not self.used and not (self.columns and is_provisional):
            raise DataError(
                f"None of the {frame.shape[1]} columns varies over the {len(frame)} training "
                "rows (constant or missing), so there is nothing to learn from; give more rows, "
                "or other columns."
            )
        matrix = self.transform(table)
        if labels is None:
            return matrix
        for index, column in enumerate(self.used):
            if isinstance(column, RateColumn | JointRateColumn):
                cells = [frame.iloc[:, place] for place in _positions(column)]
                matrix[:, index] = column.cross_fitted(labels, *cells)
        fitted = fit_scores(matrix, labels, np.array([_is_number(c) for c in self.used] or [False]))
        if fitted is None:
            return matrix
        self.linear_scores, scores = fitted
        return np.hstack([matrix, scores])

    def _learnt(self, frame: pd.DataFrame, labels: IntArray | None) -> tuple[Column, ...]:
        """Learn the records of the columns from training rows."""
        readings = self._readings(frame, labels)
        warn_of_merged(frame, readings)
        columns, absences = list[Column](), set[bytes]()
        for position, ((_, cells), reading) in enumerate(zip(frame.items(), readings, strict=True)):
            learn = fit_numeric if reading.kind in ("numeric", "datetime") else fit_categories
            records = learn(cells, position, reading, labels)
            columns += _without_repeated_absences(records, cells, absences)
        if labels is not None:
            warn_of_ids(frame, readings, labels)
            if self.pairs:
                columns += fit_pairs(frame, columns, labels)
                columns += fit_joint_rates(frame, columns, labels)
        return tuple(columns)

    def transform(self, table: Table) -> Float32Array:
        """The matrix `[rows, columns]` of a table, with NaN where a value is missing.

        A frame may have the training columns in any order; an array has them in the training order.
        If none of them has varied yet, the matrix has a column of zeros, since learners need one.

        Raises:
            DataError: A frame's columns are not those of the training table, or a column does not
                hold the same kind of values as in training.
        """
        frame = self.framed(table)
        matrix = np.zeros((len(frame), max(1, len(self.used))), dtype=np.float32)
        # Without `iloc`, which takes as long as encoding a column of numbers.
        cells = dict(enumerate(column for _, column in frame.items())) | _dates(frame, self.used)
        for index, column in enumerate(self.used):
            matrix[:, index] = column.encode(*(cells[place] for place in _positions(column)))
        if self.linear_scores is None:
            return matrix
        return np.hstack([matrix, self.linear_scores.of(matrix)])

    def counting(self, table: Table, labels: IntArray) -> "TablePreprocessor":
        """The same preprocessor with class rates that `read` updates as rows are added.

        `table` and `labels` are the training rows that `fit_transform` was given.
        """
        frame = self.framed(table)
        return self._with(
            CountedRateColumn.of(record, frame.iloc[:, record.position], labels)
            if isinstance(record, RateColumn)
            else record
            for record in self.columns
        )

    def read(self, table: Table, labels: IntArray) -> tuple[Float32Array, "TablePreprocessor"]:
        """The matrix of labelled rows, and the preprocessor after them.

        The matrix differs from that of `transform` in class rates that are updated (`counting`):
        those of a row count the rows before it.
        """
        matrix, frame = self.transform(table), self.framed(table)
        self._warn_of_late(frame)
        records = list(self.columns)
        places = [p for p, record in enumerate(records) if not isinstance(record, DroppedColumn)]
        for index, place in enumerate(places):
            column = records[place]
            if isinstance(column, CountedRateColumn):
                cells = frame.iloc[:, column.position]
                matrix[:, index], records[place] = column.read(cells, labels)
        return matrix, self._with(records)

    def _warn_of_late(self, frame: pd.DataFrame) -> None:
        """Warn of columns that vary in later rows but did not in those that taught the columns."""
        late = []
        for column in self.columns:
            if isinstance(column, DroppedColumn) and column.reason in (EMPTY, CONSTANT):
                names = category_names(frame.iloc[:, column.position])
                if len(set(names[~pd.isna(names)])) > (column.reason == CONSTANT):
                    late.append(brief(column.name))
        if late:
            warn_user(
                f"The first rows said nothing in columns {listed(late)} (constant or missing), and "
                "these do: the columns are left out all the same, as columns are learnt on the "
                "first rows. Fit anew, with such rows among the first, to use them."
            )

    def align(self, table: Table) -> Table:
        """The table with its columns in training order, matched by name if both have names."""
        if self.names is None or not isinstance(table, pd.DataFrame):
            return table
        return in_order(table, self.names, "the training table")

    @property
    def used(self) -> tuple[UsedColumn, ...]:
        """The records behind the columns of the matrix, in its order, without linear scores."""
        return tuple(c for c in self.columns if not isinstance(c, DroppedColumn))

    @property
    def categorical(self) -> BoolArray:
        """For each column of the matrix, whether it holds category codes."""
        codes = [isinstance(c, CategoryColumn | MissingColumn) for c in self.used] or [False]
        num_scores = 0 if self.linear_scores is None else len(self.linear_scores.shares)
        return np.array(codes + [False] * num_scores)

    @property
    def names(self) -> list[Hashable] | None:
        """Names of the columns of the training table; None for those of an array."""
        return self._labels

    @property
    def width(self) -> int:
        """Number of columns of the training table."""
        return max(column.position for column in self.columns) + 1

    def framed(self, table: Table) -> pd.DataFrame:
        """The table as a frame with its columns in training order, under their names if any."""
        aligned = self.align(table)
        # Columns are only read, so an array need not be copied.
        is_frame = isinstance(aligned, pd.DataFrame)
        return aligned if is_frame else pd.DataFrame(aligned, columns=self.names, copy=False)

    def _with(self, columns: Iterable[Column]) -> "TablePreprocessor":
        """The same preprocessor with other records of the same columns."""
        other = copy.copy(self)
        other.columns = tuple(columns)
        return other

    def _readings(self, frame: pd.DataFrame, labels: IntArray | None) -> list[Reading]:
        """Decide how each column is read: as declared, by content, or by what predicts labels."""
        readings, notes, advice = list[Reading](), list[str](), ""
        is_categorical = are_declared(self.categorical_features, self.names, frame.shape[1])
        for position, (name, cells) in enumerate(frame.items()):
            reading = Reading("categorical") if is_categorical[position] else read_as(cells)
            if reading._replace(note="") == PLAIN_NUMBERS and labels is not None:
                whole = read_whole_numbers_as(cells, labels)
                if whole is not None:
                    # In a column of names, no text stands for a missing number.
                    missing = [reading.note] if reading.note and whole.kind == "numeric" else []
                    reading = whole._replace(note=", ".join([whole.note, *missing]))
                    advice = OVERRULE
            if reading.note:
                notes.append(f"{brief(name)} ({reading.note})")
            readings.append(reading)
        if notes:
            warn_user(f"Text is read in columns {listed(notes)}.{advice}")
        return readings


def _is_number(column: UsedColumn) -> bool:
    """Whether it makes sense to sum the column with others: numbers, or one of two categories."""
    if isinstance(column, CategoryColumn):
        return len(column.codes) == 2 and column.missing is None
    return isinstance(column, NumericColumn)


def _positions(column: UsedColumn) -> list[int]:
    """Positions of the columns that a record encodes."""
    others = [column.other_position] if isinstance(column, TwoColumns) else []
    return [column.position, *others]


def _dates(frame: pd.DataFrame, columns: Sequence[UsedColumn]) -> dict[int, pd.Series]:
    """Time stamps of columns of dates, by position: read once for all parts and comparisons.

    Times of day are left out; they are read where they are encoded, which refuses dates.
    """
    read, mixed = dict[int, pd.Series](), list[str]()
    for column in columns:
        if not isinstance(column, NumericColumn) or column.kind != "datetime":
            continue
        if column.position not in read and column.text_format not in TIMES:
            cells = frame.iloc[:, column.position]
            read[column.position] = stamps(cells, column.text_format)
            zones = have_zones(cells[read[column.position].notna()])
            if len(zones | ({column.has_zone} - {None})) > 1:
                mixed.append(brief(column.name))
    if mixed:
        warn_user(
            "Some dates have a time zone and others, perhaps those of training, have none in "
            f"columns {listed(mixed)}: those without count as UTC. Give all of a column their "
            "zone, or none."
        )
    return read


def _without_repeated_absences(
    records: Sequence[Column], cells: pd.Series, absences: set[bytes]
) -> Sequence[Column]:
    """Records of a column, without a `MissingColumn` that equals one of an earlier column.

    `absences` holds where values are missing in the columns so far; that of this column is added.
    """
    distinct = []
    for column in records:
        if isinstance(column, MissingColumn):
            # Columns are often missing in the same rows, and one record of that is enough.
            where = column.encode(cells).tobytes()
            if where in absences:
                continue
            absences.add(where)
        distinct.append(column)
    reason = "all present values are the same, and an earlier column is missing in the same rows"
    return distinct or [DroppedColumn(records[0].name, records[0].position, reason)]


def in_order(frame: pd.DataFrame, names: list[Hashable], whose: str) -> pd.DataFrame:
    """The frame with its columns in the order of `names`, the columns of `whose` (in messages).

    Raises:
        DataError: Columns are missing or unknown; the message lists them.
    """
    if list(frame.columns) == names:
        return frame
    check_columns(list(frame.columns), names, whose=whose)
    return frame.iloc[:, [frame.columns.get_loc(name) for name in names]]

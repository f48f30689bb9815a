"""`tabicl-linear predict --stream`: tables are read, and predictions written, in pieces."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from tqdm import tqdm

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.classifier import TabICLLinearClassifier
from tabicl_linear.estimator.rows.files import CSV, TableFile
from tabicl_linear.files import written_whole

Write = Callable[[pd.DataFrame], None]


def predict_in_pieces(options: argparse.Namespace, classifier: TabICLLinearClassifier) -> None:
    """Fit on one file, predict another, and write the answers, all in pieces.

    Args:
        options: The command line of `predict`.
        classifier: The unfitted classifier that they ask for.

    Raises:
        CheckpointError: The model cannot be loaded.
        ConfigError: Options are invalid.
        DataError: A table cannot be read, used or written; nothing is left of the output.
    """
    train, test = TableFile(options.train), TableFile(options.test)
    target = options.target
    train.require(target)
    names = [name for name in test.columns if name != target]
    check_columns(train, names, target)
    lines = test.num_rows()
    if lines == 0:
        raise _no_rows(test)
    classifier.fit(train.path, target)
    classifier.verbose = 0  # one bar for all pieces instead of one for each
    label_type, rows = train.labels(target).dtype, 0
    with (
        _writer(options.output) as write,
        tqdm(
            total=lines,
            desc="predict",
            unit="row",
            unit_scale=True,
            leave=False,
            disable=True if options.quiet else None,
        ) as bar,
    ):
        for piece in test.pieces(names, train.texts()):
            write(answers(classifier.classes_, classifier.predict_proba(piece), label_type))
            rows += len(piece)
            bar.update(len(piece))
        if rows == 0:
            raise _no_rows(test)  # blank lines only
    if not options.quiet:
        print(
            f"read {options.train}: {classifier.n_samples_seen_} rows, {len(names)} columns, "
            f"{len(classifier.classes_)} classes; wrote {options.output}: {rows} rows",
            file=sys.stderr,
        )


def _no_rows(file: TableFile) -> DataError:
    return DataError(f"{file.path} has a header but no rows; give at least one row.")


def check_columns(train: TableFile, names: list[str], target: str) -> None:
    """Find a mismatch before the fit, which may take long.

    Args:
        train: The training table.
        names: Columns of the other table without the target.
        target: The column of the labels.

    Raises:
        DataError: The columns differ.
    """
    known = [name for name in train.columns if name != target]
    lacking, extra = sorted(set(known) - set(names)), sorted(set(names) - set(known))
    if lacking or extra:
        parts = [f"missing {', '.join(map(repr, lacking))}"] if lacking else []
        parts += [f"unknown {', '.join(map(repr, extra))}"] if extra else []
        raise DataError(
            f"The columns differ from those of the training table {train.path}: "
            f"{'; '.join(parts)}. Give the same columns, in any order."
        )


def answers(
    classes: npt.NDArray[Any], probabilities: npt.NDArray[np.float64], label_type: Any
) -> pd.DataFrame:
    """The output: `prediction`, then `proba_<label>` for each class.

    Args:
        classes: The labels.
        probabilities: `[rows, classes]`.
        label_type: Type of the column of the labels in the training table.
    """
    predicted = pd.Series(classes[probabilities.argmax(axis=1)])
    columns: dict[str, Any] = {"prediction": predicted.astype(label_type)}
    for index, label in enumerate(classes):
        columns[f"proba_{label}"] = probabilities[:, index]
    return pd.DataFrame(columns)


@contextmanager
def _writer(path: Path) -> Iterator[Write]:
    """Appends frames of equal columns to a file that has its name only once it is complete.

    Raises:
        DataError: The file cannot be written; nothing is left behind.
    """
    open_file = _to_csv if path.suffix.lower() == CSV else _to_parquet
    try:
        with written_whole(path) as partial, open_file(partial) as write:
            yield write
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error


@contextmanager
def _to_csv(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8", newline="") as file:

        def write(frame: pd.DataFrame) -> None:
            frame.to_csv(file, index=False, header=file.tell() == 0)

        yield write


@contextmanager
def _to_parquet(path: Path) -> Iterator[Write]:
    # Imported here, since only Parquet needs it.
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    with path.open("wb") as file:
        writer: Any = None

        def write(frame: pd.DataFrame) -> None:
            nonlocal writer
            table = pa.Table.from_pandas(frame, preserve_index=False)
            if writer is None:
                writer = ParquetWriter(file, table.schema)
            writer.write_table(table)

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()

"""`tabicl-linear predict`: class probabilities for the rows of a user's own table.

Reads and writes CSV or Parquet, by suffix. The output file is written atomically.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import DataError
from tabicl_linear.files import written_whole

CSV = ".csv"
PARQUET = ".parquet"


def main(argv: list[str]) -> int:
    """Classify the rows of a file; return the exit code.

    Args:
        argv: Command line after `predict`.

    Raises:
        CheckpointError: The model cannot be loaded.
        ConfigError: Options are invalid.
        DataError: A table cannot be read, used or written.
    """
    options = _parser().parse_args(argv)
    with _warnings_as_lines():
        _predict(options)
    return 0


def _predict(options: argparse.Namespace) -> None:
    # The classifier imports torch, which takes seconds, so files and names are checked first.
    _check_output(options)
    if options.stream:
        from tabicl_linear.cli.predict_stream import predict_in_pieces

        predict_in_pieces(options)
        return
    train = read_table(options.train)
    test = read_table(options.test)
    target = options.target
    if target not in train.columns:
        raise DataError(
            f"{options.train} has no target column {target!r}; its columns (commas separate them) "
            f"are {_shown(train.columns)}."
        )
    labels = train.pop(target)
    absent = int(labels.isna().sum())
    if absent:
        raise DataError(
            f"Target column {target!r} of {options.train} is missing in {absent} of {len(labels)} "
            "rows; remove those rows."
        )
    if train.shape[1] == 0:
        raise DataError(f"{options.train} has no column besides the target {target!r}; add some.")
    test = test.drop(columns=target, errors="ignore")

    from tabicl_linear.estimator.classifier import TabICLLinearClassifier

    classifier = TabICLLinearClassifier(
        options.model,
        n_estimators=options.n_estimators,
        categorical_features=options.categorical,
        device=options.device,
        random_state=options.seed,
        verbose=0 if options.quiet else 1,
    )
    classifier.fit(train, labels)
    probabilities = classifier.predict_proba(test)
    columns: dict[str, Any] = {"prediction": classifier.classes_[probabilities.argmax(axis=1)]}
    for index, label in enumerate(classifier.classes_):
        columns[f"proba_{label}"] = probabilities[:, index]
    write_table(pd.DataFrame(columns), options.output)
    if not options.quiet:
        print(
            f"read {options.train}: {len(train)} rows, {train.shape[1]} columns, classes "
            f"{_shown(classifier.classes_)}; wrote {options.output}: {len(test)} rows",
            file=sys.stderr,
        )


def read_table(path: Path) -> pd.DataFrame:
    """The rows of a CSV or Parquet file.

    Raises:
        DataError: The file is missing, empty or unreadable, has an unknown suffix, or no rows.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a CSV or Parquet file.")
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    suffix = _suffix(path)
    try:
        names = _header(path) if suffix == CSV else []
        # low_memory=False reads in one piece; in pieces, pandas may give one column several types.
        table = pd.read_csv(path, low_memory=False) if suffix == CSV else pd.read_parquet(path)
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{path} is empty; give a header line and rows.") from error
    except (ValueError, OSError) as error:  # pandas' and pyarrow's reading errors are ValueErrors
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path} is not a readable {suffix[1:]} file ({reason}); CSV files are comma-separated "
            "UTF-8 with a header."
        ) from error
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: column name {twice[0]!r} occurs more than once; rename it.")
    if len(table) == 0:
        raise DataError(f"{path} has a header but no rows; give at least one row.")
    return table


def _header(path: Path) -> list[str]:
    """Column names as the file has them: pandas would rename a second `y` to `y.1`."""
    first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    return [str(name) for name in first.iloc[0] if name != ""]


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write the table to a temporary name in the same folder, then rename the file.

    Raises:
        DataError: The file cannot be written; nothing is left behind.
    """
    try:
        with written_whole(path) as partial:
            if _suffix(path) == CSV:
                table.to_csv(partial, index=False)
            else:
                table.to_parquet(partial, index=False)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear predict",
        description="Classify the rows of TEST after reading the labelled rows of TRAIN.",
        epilog="Files are CSV or Parquet, by suffix. Output: prediction, proba_<label>, ...",
    )
    parser.add_argument("train", type=Path, help="table with the target column")
    parser.add_argument("test", type=Path, help="table to classify; a target column is ignored")
    parser.add_argument("--target", required=True, help="name of the target column")
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    parser.add_argument(
        "--model",
        default="default",
        help="checkpoint or safetensors export (default: the weights of the package)",
    )
    parser.add_argument("--n-estimators", type=int, default=8, help="ensemble members (default: 8)")
    parser.add_argument(
        "--categorical", nargs="+", metavar="COLUMN", help="number columns to read as categories"
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ... (default: cuda if available)")
    parser.add_argument("--seed", type=_seed, default=42, help="ensemble seed (default: 42)")
    parser.add_argument(
        "--stream",
        action="store_true",
        help="read and write in pieces, for tables larger than memory (docs/growing.md)",
    )
    parser.add_argument("--quiet", action="store_true", help="errors only")
    return parser


def _seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 2**32:
        raise argparse.ArgumentTypeError(f"{seed}: give an integer from 0 to {2**32 - 1}")
    return seed


def _check_output(options: argparse.Namespace) -> None:
    output: Path = options.output
    _suffix(output)
    if output.is_dir():
        raise DataError(f"--output {output} is a folder; give a file name in it.")
    if not output.parent.is_dir():
        raise DataError(f"--output {output}: folder {output.parent} does not exist; create it.")
    for source in (options.train, options.test):
        if output.exists() and source.exists() and output.samefile(source):
            raise DataError(f"--output {output} is one of the input files; give another name.")


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (CSV, PARQUET):
        raise DataError(f"{path}: unknown suffix {path.suffix!r}; use {CSV} or {PARQUET}.")
    return suffix


def _shown(names: Sequence[Any] | pd.Index, most: int = 10) -> str:
    shown = ", ".join(str(name) for name in list(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show warnings on stderr as one line each, without source code."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        print(f"tabicl-linear predict: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield

"""`tabicl-linear predict`: class probabilities for the rows of a user's own table.

Reads and writes CSV, TSV or Parquet, by suffix. The output file is written atomically.
"""

import argparse
import codecs
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tabicl_linear.cli.checkpoints import add_trust
from tabicl_linear.cli.outputs import say, warnings_as_lines
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError
from tabicl_linear.shipped import WEIGHTS
from tabicl_linear.signals import ended_at_once, exit_by, handled

if TYPE_CHECKING:
    from tabicl_linear.estimator.classifier import TabICLLinearClassifier

OPTIONS = {
    "categorical_features": "--categorical",
    "n_estimators": "--n-estimators",
    "class_weight": "--class-weight balanced",
}
"""Options by the arguments of the classifier that its warnings name."""


def main(argv: list[str]) -> int:
    """Classify the rows of a file, and print what was read and written; return the exit code."""
    options = _parser().parse_args(argv)
    predict = _on_cluster if options.dask else _in_pieces if options.stream else _at_once
    with warnings_as_lines("predict", OPTIONS), handled(exit_by, signal.SIGTERM):
        summary = predict(options)
        if not options.quiet:
            say(summary)
    return 0


def _at_once(options: argparse.Namespace) -> str:
    """Predict with both tables in memory, checked against each other first; return a summary."""
    with ended_at_once():
        from tabicl_linear.cli.predict_tables import read_tables, summary, with_predictions
        from tabicl_linear.cli.table_output import check_writable, write_table
        from tabicl_linear.estimator.rows.table_file import STANDARD_INPUT, TableFile
        from tabicl_linear.estimator.rows.text_cells import TextFormat

    paths = options.train, options.test
    if options.train == options.test == STANDARD_INPUT:
        raise ConfigError("TRAIN and TEST are both standard input; give a file for one of them.")
    check_writable(options.output, paths)
    as_written = (*options.id_columns, options.target)
    text = TextFormat(options.sep, options.encoding, options.na_values, as_written)
    train, test = (TableFile(path, text) for path in paths)
    if train.is_typed and test.is_typed and (given := _text_options(options)):
        raise ConfigError(
            f"{', '.join(given)}: for CSV and TSV files, and these are Parquet; leave it out."
        )
    tables = read_tables(
        train,
        test,
        options.target,
        id_columns=options.id_columns,
        drop=options.drop,
        categorical=options.categorical,
        dates=options.dates,
    )
    classifier = _classifier(options)
    classifier.fit(tables.train, tables.labels)
    probabilities = classifier.predict_proba(tables.test)
    classes, label_type = classifier.classes_, tables.labels.dtype
    write_table(with_predictions(tables.ids, classes, probabilities, label_type), options.output)
    return summary(train.name, classifier, options.output, len(tables.test))


def _in_pieces(options: argparse.Namespace) -> str:
    """Read tables and write predictions in pieces (`--stream`); return a summary."""
    with ended_at_once():
        from tabicl_linear.cli.predict_tables import (
            feature_names,
            summary,
            warn_of_blank_end,
            with_predictions,
        )
        from tabicl_linear.cli.table_output import check_writable, table_writer
        from tabicl_linear.estimator.notices import progress_bar
        from tabicl_linear.estimator.rows.table_file import TableFile

    _check_streamable(options, "--stream")
    check_writable(options.output, (options.train, options.test))
    train, test = TableFile(options.train), TableFile(options.test)
    names = feature_names(train, options.target, test.columns, test.name)
    num_rows = test.num_rows()
    test.check_rows(num_rows)
    classifier = _classifier(options)
    classifier.fit(train.path, options.target)
    classifier.verbose = 0  # one bar for all pieces instead of one for each
    label_type = train.labels(options.target).dtype
    with (
        table_writer(options.output) as write,
        progress_bar("predict", num_rows, not options.quiet) as bar,
    ):
        for piece in test.pieces(names, train.texts()):
            probabilities = classifier.predict_proba(piece)
            write(with_predictions(piece[[]], classifier.classes_, probabilities, label_type))
            bar.update(len(piece))
    warn_of_blank_end(piece, test.name)
    return summary(train.name, classifier, options.output, num_rows)


def _on_cluster(options: argparse.Namespace) -> str:
    """Let the workers of a cluster score a partitioned table (`--dask`); return a summary."""
    _check_streamable(options, "--dask")
    with ended_at_once():
        from tabicl_linear.cli import predict_dask

    predict_dask.check_cluster(options)
    return predict_dask.predict_on_cluster(options, _classifier(options))


def _classifier(options: argparse.Namespace) -> "TabICLLinearClassifier":
    """The classifier of the options, made after all checks, as torch takes seconds to import."""
    with ended_at_once():
        from tabicl_linear.checkpoint import load_model
        from tabicl_linear.estimator.classifier import TabICLLinearClassifier

    is_foreign = options.trust_code and options.model not in WEIGHTS
    return TabICLLinearClassifier(
        load_model(options.model, trust_code=True) if is_foreign else options.model,
        ensemble=options.ensemble,
        n_estimators=options.n_estimators,
        softmax_temperature=options.softmax_temperature,
        refine=options.refine,
        class_weight=options.class_weight,
        long_context=options.long_context,
        categorical_features=options.categorical or None,
        device=options.device,
        random_state=options.seed,
        n_jobs=options.n_jobs,
        verbose=0 if options.quiet else 1,
    )


def _text_options(options: argparse.Namespace) -> list[str]:
    """The given options that say how the text of a file is read."""
    values = {
        "--sep": options.sep,
        "--encoding": options.encoding != "utf-8",
        "--na-values": options.na_values,
    }
    return [name for name, value in values.items() if value]


def _check_streamable(options: argparse.Namespace, option: str) -> None:
    """Raise `ConfigError` for options that do not work with `--stream` or `--dask`."""
    with ended_at_once():
        from tabicl_linear.estimator.rows.table_file import STANDARD_INPUT

    values = {
        "--id-columns": options.id_columns,
        "--drop": options.drop,
        "--dates": options.dates,
        **dict.fromkeys(_text_options(options), True),
        "--refine": options.refine,
        "--softmax-temperature auto": options.softmax_temperature == "auto",
        "--long-context auto": options.long_context == "auto",
        "--stream": options.stream and option == "--dask",
        "standard input": STANDARD_INPUT in (options.train, options.test),
    }
    refused = [name for name, value in values.items() if value]
    if refused:
        raise ConfigError(
            f"{option} does not take {', '.join(refused)}: prepare the files beforehand, or leave "
            f"out {option}."
        )


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear predict",
        description="Classify the rows of TEST after reading the labelled rows of TRAIN.",
        epilog="Files are CSV, TSV (also .gz) or Parquet, by suffix; - is CSV on standard input. "
        "Output: id columns, prediction, proba_<label>, ...",
    )
    add = parser.add_argument
    add("train", type=Path, help="table with the target column")
    add("test", type=Path, help="table to classify; its target column, if any, is ignored")
    add("--target", required=True, help="name of the target column")
    add("--output", type=Path, required=True, help="file to write")
    _add_model_options(parser)
    _add_table_options(parser)
    add(
        "--stream",
        action="store_true",
        help="read and write in pieces, for tables larger than memory (docs/growing.md)",
    )
    add(
        "--dask",
        metavar="CLUSTER",
        help="score a partitioned TEST on local:N processes or at tcp://SCHEDULER, and write a "
        "folder of Parquet files (docs/growing.md)",
    )
    add("--quiet", action="store_true", help="only warnings and errors")
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--model",
        default="default",
        help="checkpoint or safetensors export (default: the weights of the package)",
    )
    add_trust(parser)
    add(
        "--ensemble",
        choices=("default", "paper"),
        default="default",
        help="number of members: the classifier's own (8; 1 to 2 with trees) or the paper's (10)",
    )
    add("--n-estimators", type=int, help="number of members, in place of the ensemble's own")
    add(
        "--softmax-temperature",
        type=_temperature,
        metavar="NUMBER|auto",
        help="divisor of the logits (default: 0.9, or 1 with trees); auto calibrates it in a "
        "second fit",
    )
    add(
        "--class-weight",
        choices=("balanced",),
        help="balanced: probabilities as if all classes were equally frequent",
    )
    add(
        "--long-context",
        choices=("full", "blocks", "auto"),
        default="full",
        help="how to read more rows than the model was trained on (docs/growing.md)",
    )
    add(
        "--refine",
        action="store_true",
        help="optimise the fitted states on the rows of TRAIN; takes minutes (docs/explaining.md)",
    )
    add("--device", help="cpu, cuda, cuda:1 ... (default: cuda if available)")
    add("--n-jobs", type=int, help="CPU threads; -1 for all (default: torch's)")
    add("--seed", type=_seed, default=42, help="ensemble seed (default: 42)")


def _add_table_options(parser: argparse.ArgumentParser) -> None:
    columns = parser.add_argument_group("columns")
    for option, what in (
        ("--categorical", "number columns to read as categories"),
        ("--id-columns", "columns that identify rows: not used as features, kept in the output"),
        ("--drop", "columns to leave out"),
        ("--dates", "text columns that hold dates"),
    ):
        columns.add_argument(option, nargs="+", default=[], metavar="COLUMN", help=what)
    text = parser.add_argument_group("CSV and TSV files")
    text.add_argument("--sep", type=_sep, help=r"character between fields (default: , or \t)")
    text.add_argument(
        "--encoding", type=_encoding, default="utf-8", help="text encoding (default: utf-8)"
    )
    text.add_argument(
        "--na-values",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="more texts that mean a missing value",
    )


def _seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed < 2**32:
        raise argparse.ArgumentTypeError(f"{seed}: give an integer from 0 to {2**32 - 1}")
    return seed


def _temperature(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)  # the classifier checks its range
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: give a positive number or auto") from error


def _sep(text: str) -> str:
    sep = "\t" if text in (r"\t", "tab") else text
    if len(sep) != 1 or sep in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r}: give one character, such as ';'")
    return sep


def _encoding(text: str) -> str:
    try:
        "".encode(text)  # fails for codecs that do not encode text, such as hex
        return codecs.lookup(text).name
    except LookupError as error:
        raise argparse.ArgumentTypeError(
            f"{text}: no such encoding; give utf-8, latin-1, cp1252 ..."
        ) from error

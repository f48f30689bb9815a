"""`tabicl-linear predict --stream`: tables are read, and predictions written, in pieces."""

import argparse

import pandas as pd

from tabicl_linear.cli.outputs import say
from tabicl_linear.cli.predict_tables import check_columns, with_predictions
from tabicl_linear.cli.table_output import table_writer
from tabicl_linear.estimator.classifier import TabICLLinearClassifier
from tabicl_linear.estimator.members.ensemble import progress_bar
from tabicl_linear.estimator.rows.table_file import TableFile, no_rows


def predict_in_pieces(options: argparse.Namespace, classifier: TabICLLinearClassifier) -> None:
    """Fit on one file, predict another, and write the answers, in pieces; see `predict.main`."""
    train, test = TableFile(options.train), TableFile(options.test)
    target = options.target
    train.require(target)
    features, names = ([name for name in file.columns if name != target] for file in (train, test))
    check_columns(features, names, files=(train.name, test.name))
    num_rows = test.num_rows()
    if num_rows == 0:
        raise no_rows(test.name)
    classifier.fit(train.path, target)
    classifier.verbose = 0  # one bar for all pieces instead of one for each
    label_type = train.labels(target).dtype
    with (
        table_writer(options.output) as write,
        progress_bar("predict", num_rows, not options.quiet) as bar,
    ):
        for piece in test.pieces(names, train.texts()):
            probabilities = classifier.predict_proba(piece)
            ids = pd.DataFrame(index=piece.index)
            write(with_predictions(ids, classifier.classes_, probabilities, label_type))
            bar.update(len(piece))
    if not options.quiet:
        say(
            f"read {options.train}: {classifier.n_samples_seen_} rows, {len(names)} columns, "
            f"{len(classifier.classes_)} classes; wrote {options.output}: {num_rows} rows"
        )

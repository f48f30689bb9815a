"""`tabicl-linear oracle`: how much better a model predicts if its states are optimised."""

import argparse
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabicl_linear.cli.checkpoints import add_models, add_placement, checksum, loaded, named
from tabicl_linear.cli.outputs import say, warnings_as_lines, writing_to
from tabicl_linear.cli.parser import OneLineArgumentParser, count
from tabicl_linear.errors import ConfigError, counted
from tabicl_linear.files import written_whole
from tabicl_linear.pages import markdown, plus_minus
from tabicl_linear.signals import ended_at_once

if TYPE_CHECKING:
    from tabicl_linear.lengths.oracle_tasks import SyntheticTasks, TableTasks
    from tabicl_linear.lengths.run import Models

RESULTS = "oracle.csv"
METRICS = {"roc_auc": "ROC-AUC", "accuracy": "accuracy", "log_loss": "log-loss"}
OF_SYNTHETIC = {"datasets": 10, "rows": 8000, "features": 10, "classes": 5, "data_seed": 42}
OF_TABLE = {"folds": 5}
"""Options that apply to one kind of data only, with their defaults."""


def main(argv: list[str]) -> int:
    """Optimise the states on every dataset or fold and compare scores; return the exit code."""
    arguments = _parser().parse_args(argv)
    if (arguments.table is None) != (arguments.target is None):
        raise ConfigError("--table and --target: give both, or neither for synthetic datasets.")
    _complete(arguments)
    if arguments.folds < 2:
        raise ConfigError(f"--folds {arguments.folds}: give at least 2.")
    paths = named(arguments.checkpoint, arguments.names)
    # Torch takes seconds to import, so the checks that do not need it come first.
    with ended_at_once():
        from tabicl_linear.analysis.state_optimisation import OracleOptions, check_model
        from tabicl_linear.lengths import parts
        from tabicl_linear.lengths.oracle_tasks import COLUMNS, compare

    values = {field.name: getattr(arguments, field.name) for field in fields(OracleOptions)}
    options = OracleOptions(**{name: value for name, value in values.items() if value is not None})
    models = loaded(paths, arguments)
    for name, model in models.items():
        try:
            check_model(model)
        except ConfigError as error:
            raise ConfigError(f"--checkpoint {paths[name]}: {error}") from error
    with warnings_as_lines("oracle"):
        tasks, about = _tasks(arguments, models)
    checksums = {name: checksum(path) for name, path in paths.items()}
    settings = about | {"checkpoints": checksums, "oracle": asdict(options)}
    parts.open_folder(arguments.output, settings)
    compute = partial(compare, models, tasks, options)
    parts.run(arguments.output, range(len(tasks)), compute, COLUMNS, say)
    _conclude(arguments.output, len(tasks))
    return 0


def _complete(arguments: argparse.Namespace) -> None:
    """Fill in defaults; raise `ConfigError` for an option that does not apply to the data."""
    foreign, remedy = OF_SYNTHETIC, "it is for synthetic datasets; leave it out beside --table"
    if arguments.table is None:
        foreign, remedy = OF_TABLE, "it is for a table; give --table, or leave it out"
    for name in foreign:
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')} {getattr(arguments, name)}"
            raise ConfigError(f"{option}: {remedy}.")
    for name, default in (OF_SYNTHETIC | OF_TABLE).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, default)


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear oracle",
        description="Fit contexts, optimise the states with the weights frozen, and score new rows "
        "before and after, on synthetic datasets or on the folds of a table. If it is stopped, the "
        "same command continues. docs/lengths.md explains the results.",
    )
    add_models(parser)
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the run")
    synthetic = parser.add_argument_group("synthetic datasets, as of `tabicl-linear lengths`")
    synthetic.add_argument("--datasets", type=count, help="number of datasets (10)")
    synthetic.add_argument("--rows", type=count, help="context rows (8000)")
    synthetic.add_argument("--features", type=count, help="columns of a dataset (10)")
    synthetic.add_argument("--classes", type=count, help="classes of a dataset (5)")
    synthetic.add_argument("--data-seed", type=int, help="seed of the datasets (42)")
    table = parser.add_argument_group("a table instead")
    table.add_argument("--table", type=Path, metavar="FILE", help="CSV or Parquet file")
    table.add_argument("--target", metavar="COLUMN", help="name of its target column")
    table.add_argument("--folds", type=count, help="folds of the cross-validation (5)")
    of_oracle = parser.add_argument_group("optimisation")
    add = of_oracle.add_argument
    add("--start", choices=("training_rows", "all_rows"), help="rows of the starting state")
    add("--learning-rate", type=float, help="learning rate, in units of a head's RMS (0.01)")
    add("--absolute-rate", action="store_true", help="do not scale the learning rate")
    add("--weight-decay", type=float, help="weight decay of AdamW (1e-5)")
    add("--held-out", type=float, help="share of rows held out for early stopping (0.1)")
    add("--batch-rows", type=count, help="rows of a minibatch (4000)")
    add("--gradient-rows", type=count, help="rows backpropagated at a time (512)")
    add("--pass-rows", type=count, help="rows of a pass, drawn anew for each (all)")
    add("--max-epochs", type=count, help="most passes (400)")
    add("--patience", type=count, help="passes without improvement before it stops (20)")
    add("--tolerance", type=float, help="least improvement of the held-out loss (1e-5)")
    add("--seed", type=int, help="seed of held-out rows and minibatches (42)")
    add_placement(parser)
    return parser


def _tasks(
    arguments: argparse.Namespace, models: "Models"
) -> "tuple[SyntheticTasks | TableTasks, dict[str, Any]]":
    """The tasks to optimise on, and a description of the data for the run's settings file."""
    from tabicl_linear.estimator.rows.table_file import TableFile
    from tabicl_linear.lengths.datasets import DatasetOptions
    from tabicl_linear.lengths.oracle_tasks import SyntheticTasks, TableTasks, limits
    from tabicl_linear.lengths.run import check_sizes

    if arguments.table is None:
        options = DatasetOptions(
            max_rows=arguments.rows,
            lengths=(arguments.rows,),
            num_features=arguments.features,
            num_classes=arguments.classes,
            seed=arguments.data_seed,
        )
        check_sizes(options, models)
        datasets = asdict(options) | {"lengths": list(options.lengths)}
        return SyntheticTasks(options, arguments.datasets), {"datasets": datasets}
    table, labels = TableFile(arguments.table).labelled(arguments.target)
    about = {"table": checksum(arguments.table), "target": arguments.target}
    tasks = TableTasks(table, labels, folds=arguments.folds, limits=limits(models))
    return tasks, about | {"folds": arguments.folds}


def _conclude(folder: Path, num_tasks: int) -> None:
    """Write the scores of all datasets or folds, and print their means."""
    from tabicl_linear.lengths.oracle_tasks import COLUMNS
    from tabicl_linear.lengths.parts import results
    from tabicl_linear.lengths.scores import half_width

    scores = results(folder, COLUMNS, num_tasks, say)
    with writing_to(folder), written_whole(folder / RESULTS) as path:
        scores.to_csv(path, index=False)
    lines = []
    for model, rows in scores.groupby("model", sort=False):
        for metric, title in METRICS.items():
            before, after = rows[metric], rows[f"oracle_{metric}"]
            half = half_width((after - before).to_numpy())
            gain = f"{(after - before).mean():+.4f}{plus_minus(half)}"
            lines.append([str(model), title, f"{before.mean():.4f}", f"{after.mean():.4f}", gain])
    header = ["model", "score", "as fitted", "optimised", "difference ± 95 % interval"]
    print(markdown(header, lines))
    of = counted(num_tasks, "dataset or fold", "datasets or folds")
    epochs = counted(round(scores["best_epoch"].median()), "epoch")
    updates = scores["smallest_update"].min(), scores["largest_update"].max()
    print(
        f"\n{of} of {scores['num_rows'].min():,} rows; best after {epochs} (median); relative "
        f"updates of layers {updates[0]:.2g} to {updates[1]:.2g}."
    )
    say(f"wrote {folder / RESULTS}")

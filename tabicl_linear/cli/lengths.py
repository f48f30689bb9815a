"""`tabicl-linear lengths`: scores of models as the context grows beyond the trained length."""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tabicl_linear.cli.checkpoints import add_models, add_placement, checksum, loaded, named
from tabicl_linear.cli.outputs import say, writing_to
from tabicl_linear.cli.parser import OneLineArgumentParser, count
from tabicl_linear.errors import ConfigError, counted
from tabicl_linear.files import written_whole
from tabicl_linear.shards import WHOLE, Shard
from tabicl_linear.signals import ended_at_once

if TYPE_CHECKING:
    from tabicl_linear.lengths.reference import Reference
    from tabicl_linear.lengths.run import Models, RunOptions


RESULTS, SUMMARY, FIGURE = "results.parquet", "summary.csv", "lengths.png"


def main(argv: list[str]) -> int:
    """Score the datasets of this shard, then summarise all shards' scores; return the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.output is None and arguments.cost is None:
        raise ConfigError("--output: name the folder of the run; --help lists the options.")
    paths = named(arguments.checkpoint, arguments.names)
    # Torch takes seconds to import, so the checks that do not need it come first.
    with ended_at_once():
        from tabicl_linear.lengths import cost, parts
        from tabicl_linear.lengths.reference import Reference
        from tabicl_linear.lengths.run import COLUMNS, read_dataset

    options = _options(arguments, list(paths))
    reference = Reference() if arguments.reference is None else Reference.read(arguments.reference)
    models = loaded(paths, arguments)
    options.check(models)
    if arguments.cost is not None:
        print(cost.markdown(cost.measure(models, options, arguments.cost)))
        return 0
    settings = options.settings({name: checksum(path) for name, path in paths.items()})
    reference.check(settings, options.labels(models))
    parts.open_folder(arguments.output, settings)
    mine = arguments.shard.of(arguments.datasets)
    compute = partial(read_dataset, models, options)
    parts.run(arguments.output, mine, compute, COLUMNS, say)
    _conclude(arguments, reference, models)
    return 0


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear lengths",
        description="Score models on synthetic datasets at many context lengths. If it is stopped, "
        "the same command continues. docs/lengths.md explains the results.",
    )
    add_models(parser)
    add = parser.add_argument
    add("--output", type=Path, metavar="DIR", help="folder of the run")
    add("--datasets", type=count, default=500, help="number of datasets (500)")
    add("--max-rows", type=count, default=128_000, help="most context rows of a dataset (128000)")
    add(
        "--lengths",
        type=count,
        nargs="+",
        default=(),
        metavar="ROWS",
        help="context rows to read at (250 500 750 1000 2000 ... up to --max-rows)",
    )
    add("--blocks", nargs="*", metavar="NAME", help="also let these models, or all, read in blocks")
    add("--block-rows", type=count, default=3000, help="most rows of a block (3000)")
    add(
        "--oracle",
        nargs="*",
        metavar="NAME",
        help="also optimise the states of these models, or of all, at the longest context",
    )
    add("--oracle-epochs", type=count, default=400, help="most passes of that optimisation (400)")
    add(
        "--statistics",
        choices=("longest", "first", "each"),
        default="longest",
        help="rows that causal models take column statistics from: the longest context (the "
        "default), the first, or each, for which they are fitted anew",
    )
    add(
        "--reference",
        type=Path,
        metavar="FILE",
        help="YAML file that names the reference set of normalised scores (all models)",
    )
    add("--shard", type=Shard.parse, default=WHOLE, metavar="i/n", help="only part i of n (1/1)")
    add("--seed", type=int, default=42, help="seed of the datasets (42)")
    add("--queries", type=count, default=100, help="query rows of a dataset (100)")
    add("--features", type=count, default=10, help="columns of a dataset (10)")
    add("--classes", type=count, default=5, help="classes of a dataset (5)")
    add(
        "--cost",
        type=count,
        metavar="ROUNDS",
        help="only measure how much longer reading at all lengths takes than at the longest alone",
    )
    add_placement(parser)
    return parser


def _options(arguments: argparse.Namespace, names: list[str]) -> "RunOptions":
    from tabicl_linear.analysis.state_optimisation import OracleOptions
    from tabicl_linear.lengths.datasets import DatasetOptions
    from tabicl_linear.lengths.run import RunOptions

    def chosen(option: list[str] | None) -> tuple[str, ...]:
        return () if option is None else tuple(option or names)

    datasets = DatasetOptions(
        max_rows=arguments.max_rows,
        lengths=tuple(arguments.lengths),
        num_queries=arguments.queries,
        num_features=arguments.features,
        num_classes=arguments.classes,
        seed=arguments.seed,
    )
    return RunOptions(
        datasets,
        blocks=chosen(arguments.blocks),
        block_rows=arguments.block_rows,
        oracle=chosen(arguments.oracle),
        oracle_options=OracleOptions(max_epochs=arguments.oracle_epochs),
        statistics=arguments.statistics,
    )


def _conclude(arguments: argparse.Namespace, reference: "Reference", models: "Models") -> None:
    """Write the results, summary and figure of all datasets scored so far, by any shard."""
    from tabicl_linear.lengths.cost import peak_megabytes
    from tabicl_linear.lengths.figure import draw
    from tabicl_linear.lengths.parts import results
    from tabicl_linear.lengths.run import COLUMNS
    from tabicl_linear.lengths.scores import SHORT_ROWS, markdown, normalise, summarise
    from tabicl_linear.parquet import write_table

    folder: Path = arguments.output
    scores = results(folder, COLUMNS, arguments.datasets, say)
    if scores.empty:
        say("no dataset has been read yet")
        return
    selected = reference.select(scores)
    metrics = ["roc_auc", "accuracy"]
    if (selected["num_rows"] <= SHORT_ROWS).any():
        scores = normalise(scores, selected)
        normalised = [f"normalised_{metric}" for metric in metrics]
        if scores[normalised].notna().any(axis=None):
            metrics = normalised + metrics
        else:
            say("no normalised scores: on every dataset the reference set always scores the same")
    else:
        say(
            f"no normalised scores: the reference set has no context of {SHORT_ROWS:,} rows or less"
        )
    summary = summarise(scores)
    lengths = {name: model.longest_context for name, model in models.items()}
    trained = {name: rows for name, rows in lengths.items() if rows is not None}
    with writing_to(folder):
        write_table(folder / RESULTS, scores)
        with written_whole(folder / SUMMARY) as path:
            summary.to_csv(path, index=False)
        draw(summary, trained, folder / FIGURE)
    say(f"peak memory {peak_megabytes():,.0f} MB")
    datasets = counted(scores["dataset"].nunique(), "dataset")
    for metric in metrics:
        print(f"{metric}, mean over {datasets} ± 95 % interval\n")
        print(f"{markdown(summary, metric)}\n")
    say(f"wrote {folder / RESULTS}, {folder / SUMMARY} and {folder / FIGURE}")

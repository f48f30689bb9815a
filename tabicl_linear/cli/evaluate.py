"""`tabicl-linear evaluate`: models and baselines on the tables of a benchmark."""

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tabicl_linear.cli.checkpoints import add_trust
from tabicl_linear.cli.extras import BENCHMARKS, require
from tabicl_linear.cli.outputs import check_folder, say
from tabicl_linear.cli.parser import OneLineArgumentParser, count
from tabicl_linear.errors import ConfigError, counted
from tabicl_linear.files import remedy_of
from tabicl_linear.shards import WHOLE, Shard
from tabicl_linear.signals import ended_at_once

if TYPE_CHECKING:
    from tabicl_linear.evaluation.benchmarks import Source

_say = partial(say, verb="evaluate")


def main(argv: list[str]) -> int:
    """Run the trials that the output folder lacks; return the exit code, 1 if any failed."""
    options = _parser().parse_args(argv)
    try:
        return _evaluate(options)
    except OSError as error:
        where = f"--output {options.output}" if error.filename is None else error.filename
        reason = error.strerror or error
        raise ConfigError(f"{where}: {reason}; {remedy_of(error)}.") from error


def _evaluate(options: argparse.Namespace) -> int:
    # These import torch and scikit-learn, which takes seconds, so the options are read before.
    with ended_at_once():
        from joblib import cpu_count

        from tabicl_linear.cli.lock import locked
        from tabicl_linear.evaluation.benchmarks import benchmark
        from tabicl_linear.evaluation.candidates import candidates
        from tabicl_linear.evaluation.evaluation import RESULTS, Evaluation, plan, run

    output: Path = options.output
    check_folder(output)
    evaluation = Evaluation(
        candidates=candidates(
            options.model,
            options.baseline,
            options.ensemble,
            options.arguments,
            trust_code=options.trust_code,
        ),
        benchmark=benchmark(options.benchmark, options.suite, partial(_openml, options)),
        ensemble=options.ensemble,
        shard=options.shard,
        jobs=options.jobs,
        threads=options.threads or max(1, cpu_count() // options.jobs),
        again=options.retry_failed,
    )
    evaluation, content = plan(evaluation, output, _say)
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as locks:
        # Shards of one evaluation may run side by side, but no shard twice, and none beside a
        # command that runs the whole.
        locks.enter_context(locked(output, shared=options.shard != WHOLE))
        if options.shard != WHOLE:
            name = ".lock-{}-of-{}".format(*options.shard)
            locks.enter_context(locked(output, name))
        failed = run(evaluation, content, output, _say)
    _say(f"wrote {output / RESULTS}")
    if failed:
        _say(f"{counted(failed, 'trial')} failed; the column error of {RESULTS} says why")
    return 1 if failed else 0


def _openml(options: argparse.Namespace, name: str, suite: str | None) -> "tuple[Source, ...]":
    from tabicl_linear.evaluation.openml_cache import OpenMLCache

    if not options.offline:
        require(BENCHMARKS, "evaluate")
    cache = OpenMLCache(options.cache, offline=options.offline, say=_say)
    return cache.sources(name, suite)


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear evaluate",
        description="Score models and baselines on real tables by the paper's protocol. If it is "
        "stopped, the same command continues. docs/evaluation.md explains all of it.",
    )
    add = parser.add_argument
    add(
        "--benchmark",
        required=True,
        metavar="{openml-cc18,tabarena,folder:PATH}",
        help="tables from OpenML, or from a folder with index.csv and parquet files",
    )
    add("--suite", help="suite of a folder's tables, or number of another OpenML suite")
    _add_candidates(parser)
    add("--output", type=Path, required=True, help="folder for the results")
    add(
        "--ensemble",
        choices=("default", "paper"),
        default="default",
        help="members of our models: the classifier's own, or 10 as in the paper",
    )
    add("--shard", type=Shard.parse, default=WHOLE, metavar="i/n", help="only part i of n (1/1)")
    add("--jobs", type=count, default=1, help="trials to run at the same time (1)")
    add("--threads", type=count, help="threads of each trial (the cores divided by --jobs)")
    add("--retry-failed", action="store_true", help="repeat trials that failed")
    add("--cache", type=Path, help="folder of tables from OpenML (~/.cache/tabicl_linear/openml)")
    add("--offline", action="store_true", help="use only tables that are in the cache")
    return parser


def _add_candidates(parser: OneLineArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--model",
        nargs="+",
        action="extend",
        default=[],
        metavar="MODEL",
        help="default, PATH or NAME=PATH of a checkpoint or export",
    )
    add_trust(parser)
    add(
        "--baseline",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="logistic_regression, random_forest, hist_gradient_boosting, random_feature_ridge, "
        "catboost, xgboost, tabpfn:PATH, tabicl:PATH (PATH: file of weights), or module.Class of "
        "your own",
    )
    add(
        "--arguments",
        nargs="+",
        action="append",
        default=[],
        metavar=("MODEL", "NAME=VALUE"),
        help="classifier arguments for one of the models, for example network trees=false; can be "
        "repeated",
    )

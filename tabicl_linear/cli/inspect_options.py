"""Options of `tabicl-linear inspect`, apart from the work, so that `--help` loads no torch."""

import argparse
from pathlib import Path

from tabicl_linear.cli.checkpoints import add_trust
from tabicl_linear.cli.outputs import check_folder
from tabicl_linear.cli.parser import OneLineArgumentParser, count
from tabicl_linear.errors import ConfigError
from tabicl_linear.signals import ended_at_once

MOST_CHECKPOINTS = 2
NAMES = (
    *("scores", "drift", "write_rates", "contribution"),
    *("ridge_target", "order_sensitivity"),
)
"""Names of the analyses: the keys of `tabicl_linear.analysis.inspection.ANALYSES`."""


def main(argv: list[str]) -> int:
    """Check the options, then analyse the checkpoints; return the exit code."""
    options = _parser().parse_args(argv)
    _check(options)
    with ended_at_once():
        from tabicl_linear.cli.inspect import run  # torch takes seconds to import

    return run(options)


def _check(options: argparse.Namespace) -> None:
    """Raise `ConfigError` for options that cannot work, before anything is loaded."""
    if len(options.checkpoints) > MOST_CHECKPOINTS:
        raise ConfigError(
            f"{len(options.checkpoints)} checkpoints were given; give one, or two to compare."
        )
    if (options.table is None) != (options.target is None):
        raise ConfigError("--table and --target belong together; give both or neither.")
    output: Path = options.output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(
            f"--output {output} is there already and not an empty folder; give a new name, or "
            "delete it."
        )
    # The result is written next to the output folder, which it then replaces.
    place = output.resolve()
    if place == Path.cwd() or place.is_mount():
        raise ConfigError(
            f"--output {output} cannot be replaced, as the current folder or that of a disk; name "
            f"a new one, such as {output / 'seen'}."
        )
    check_folder(output, replaced=True)


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear inspect",
        description="Show what the states and write rates of a checkpoint do, or of two side by "
        "side: scores by context length, drift, write rates, contributions, ridge targets, order "
        "of rows. docs/seeing.md explains the page.",
    )
    add = parser.add_argument
    add(
        "checkpoints",
        nargs="+",
        metavar="CKPT",
        help='last.ckpt or safetensors export, or "default"; two are compared',
    )
    add("--output", type=Path, required=True, help="folder to write; must not exist, or be empty")
    add("--table", type=Path, help="CSV or Parquet file to analyse on (default: synthetic tasks)")
    add("--target", help="name of the table's target column")
    add("--lengths", type=int, nargs="+", metavar="ROWS", help="context lengths, increasing")
    add("--tasks", type=count, default=8, help="synthetic tasks, or row orders of --table (8)")
    add("--only", nargs="+", choices=NAMES, help="run only these analyses")
    add_trust(parser)
    return parser

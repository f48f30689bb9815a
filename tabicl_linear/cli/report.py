"""`tabicl-linear report DIR ...`: statistics, tables and figures of benchmark results."""

import argparse
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from tabicl_linear.cli.extras import BENCHMARKS, require
from tabicl_linear.cli.outputs import check_folder, say, writing_to
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole
from tabicl_linear.signals import ended_at_once

FILES = "files.txt"
"""File that lists all other files of the report, so that the next report can remove stale ones."""


def main(argv: list[str]) -> int:
    """Write a report on folders of results; return the exit code, 1 if nothing can be compared."""
    arguments = _parser().parse_args(argv)
    require(BENCHMARKS, "report")
    for folder in arguments.folders:
        if folder.is_file():
            raise ConfigError(f"{folder} is a file; name its folder, {folder.parent}.")
    output: Path = arguments.output or arguments.folders[0] / "report"
    check_folder(output)
    with ended_at_once():
        from tabicl_linear.report.coverage import coverage
        from tabicl_linear.report.document import document
        from tabicl_linear.report.results import read

    results = read(arguments.folders, dict(arguments.name), arguments.models)
    command = shlex.join(["tabicl-linear", "report", *argv])
    files = document(results, reference=arguments.reference, command=command)
    with writing_to(output):
        _write(files, output)
    say(f"Wrote {len(files)} files into {output}; begin with report.html")
    if not any(coverage(results, name).common for name in results.protocols):
        say("no table has scores of every model: nothing is compared; the page says why", "report")
        return 1
    sys.stdout.write(files["tables/means.md"])
    return 0


def _write(files: Mapping[str, str], output: Path) -> None:
    """Write files by path, and remove tables and figures that only the last report had."""
    listed = output / FILES
    former = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    for name, text in {**files, FILES: "".join(f"{name}\n" for name in files)}.items():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    for name in set(former) - set(files):
        if re.fullmatch(r"(tables|figures)/[^/]*\.(md|tex|csv|svg)", name):
            (output / name).unlink(missing_ok=True)


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear report",
        description="Compare models on benchmarks: Wilcoxon tests with Holm's correction, letters, "
        "critical-difference diagrams, tables as in the paper with its numbers, one HTML page.",
    )
    add = parser.add_argument
    add("folders", metavar="DIR", nargs="+", type=Path, help="output folders of `evaluate`")
    add("--output", type=Path, help="folder of the report (DIR/report)")
    add("--models", nargs="+", metavar="MODEL", help="compare only these models")
    add("--reference", metavar="MODEL", help="model that differences are relative to (the first)")
    add(
        "--name",
        action="append",
        default=[],
        type=_renamed,
        metavar="OLD=NEW",
        help="rename a model; with a name of `tabicl-linear models` it is shown beside the paper's "
        "numbers",
    )
    return parser


def _renamed(text: str) -> tuple[str, str]:
    # Split at the last equals sign: a path may hold others, the new name does not.
    old, _, new = text.rpartition("=")
    if not old or not new:
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new

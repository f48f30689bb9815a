"""`tabicl-linear report DIR ...`: statistics, tables and figures of benchmark results."""

import argparse
import shlex
import sys
from pathlib import Path

from tabicl_linear.cli.extras import BENCHMARKS, require
from tabicl_linear.cli.outputs import writing_to
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole


def main(argv: list[str]) -> int:
    """Read the folders, write the report into one; return the exit code."""
    arguments = _parser().parse_args(argv)
    require(BENCHMARKS, "report")
    output: Path = arguments.output or arguments.folders[0] / "report"
    if output.exists() and not output.is_dir():
        raise ConfigError(f"--output {output} is a file; name a folder.")
    from tabicl_linear.report.document import document
    from tabicl_linear.report.results import read

    results = read(arguments.folders, dict(arguments.name), arguments.models)
    files = document(
        results,
        reference=arguments.reference,
        command=shlex.join(["tabicl-linear", "report", *argv]),
    )
    with writing_to(output):
        for name, text in files.items():
            path = output / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(path) as partial:
                partial.write_text(text, encoding="utf-8", newline="\n")
    sys.stdout.write(files["tables/means.md"])
    sys.stderr.write(f"Wrote {len(files)} files into {output}; begin with report.html\n")
    return 0


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear report",
        description="Compare models on benchmarks: Wilcoxon tests with Holm's correction, letters, "
        "critical-difference diagrams, tables as in the paper with its numbers, one HTML page.",
    )
    add = parser.add_argument
    add("folders", metavar="DIR", nargs="+", type=Path, help="output folders of `evaluate`")
    add("--output", type=Path, help="folder of the report (DIR/report)")
    add("--models", nargs="+", metavar="MODEL", help="compare these alone")
    add("--reference", metavar="MODEL", help="take differences from this one (the first)")
    add(
        "--name",
        action="append",
        default=[],
        type=_renamed,
        metavar="OLD=NEW",
        help="call a model by another name; by one of `tabicl-linear models` it stands beside the "
        "paper's numbers",
    )
    return parser


def _renamed(text: str) -> tuple[str, str]:
    # A path may hold an equals sign, the name of a model does not.
    old, _, new = text.rpartition("=")
    if not old or not new:
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD=NEW")
    return old, new

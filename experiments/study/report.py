"""Write every table and figure of the study from the kept measurements.

    python -m experiments.study.report --scale small [--measured DIR] [--output docs/results]

Writes README.md (verdicts first), study/claims.md, study/units.md, and a page with figures for each
item. The pages name what was not measured. Pages of other scales than small go to
runs/study/SCALE/results by default.
"""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from experiments.study import claims
from experiments.study.items import items
from experiments.study.measurements import load
from experiments.study.pages import Report, pages
from experiments.study.parts import Study
from experiments.study.readings import Tables
from experiments.study.scale import Scale, names
from tabicl_linear.cli.outputs import check_folder, writing_to
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.files import written_whole

HERE = Path(__file__).parent
MEASURED, OUTPUT = HERE / "measured", HERE.parents[1] / "docs" / "results"
LINK = re.compile(r"\]\(([^():#]+)(#[^()]*)?\)")
"""A link to a file: its path, and the heading in it."""
PUBLISHED = "small"
"""The scale whose pages are in the repository."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pages; return 0, or 2 for input that cannot be used."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = _parser().parse_args(argv)
        arguments.output = arguments.output or output_of(arguments.scale)
        check_folder(arguments.output)  # before a minute of drawing
        files = _files(arguments, shlex.join(["python", "-m", "experiments.study.report", *argv]))
        with writing_to(arguments.output):
            write(files, arguments.output)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for line in _unit_lines(arguments):
        print(line)
    print(f"wrote {arguments.output / 'README.md'} and {len(files) - 1} files beside it")
    return 0


def output_of(scale: str) -> Path:
    """Where pages go by default: only those of the scale that is published replace these."""
    return OUTPUT if scale == PUBLISHED else Path("runs", "study", scale, "results")


def _files(arguments: argparse.Namespace, command: str) -> dict[str, str]:
    scale = Scale.read(arguments.scale)
    measured = load(scale.name, arguments.measured)
    if measured.units.empty:
        raise DataError(
            f"--measured {arguments.measured} holds no unit of scale {scale.name}: train and "
            f"measure some with python -m experiments.study.run --scale {scale.name}."
        )
    tables = Tables(measured)
    verdicts = claims.verdicts(claims.read(), tables, scale.trained_rows)
    study = Study(tables, scale.trained_rows)
    return pages(Report(scale.name, scale.order, study, verdicts, command))


def _unit_lines(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield a line for each unit whose measurements are kept."""
    measured = load(arguments.scale, arguments.measured)
    for unit in measured.units.sort_values(["arm", "seed"]).itertuples():
        names = sorted(path.stem for path in (measured.folder / unit.identity).glob("*.parquet"))
        what = ", ".join(names) if unit.status == "trained" else f"failed, {unit.reason}"
        yield f"kept: {unit.arm}, seed {unit.seed} ({unit.identity}): {what}"


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write all files, and remove figures of the study that are no longer drawn.

    Links to pages that are written by hand lead to those of the repository, wherever the folder is.
    """
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = LINK.sub(partial(_linked, name=name, files=files, folder=folder), text)
        with written_whole(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8", newline="\n")
    for item in items():
        for path in (folder / "study").glob(f"{item}-*.svg"):
            if f"study/{path.name}" not in files:
                path.unlink()


def _linked(link: re.Match[str], *, name: str, files: Mapping[str, str], folder: Path) -> str:
    """A link of the page `name`, led to the repository if its file is not one of those written."""
    target = (OUTPUT / name).parent / link[1]
    if os.path.normpath(Path(name).parent / link[1]) in files or not target.exists():
        return link[0]
    path = os.path.relpath(target, (folder / name).parent)
    return f"]({Path(path).as_posix()}{link[2] or ''})"


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="python -m experiments.study.report", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--scale", choices=names(), default=PUBLISHED)
    parser.add_argument("--measured", type=Path, default=MEASURED, help="folder of measurements")
    where = (
        "folder of the pages (docs/results, of other scales than small runs/study/SCALE/results)"
    )
    parser.add_argument("--output", type=Path, help=where)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Measure this machine and write docs/performance.md, every number of it from one commit.

    python -m experiments.performance.run [NAME ...] [--output runs/performance] [--page-only]

Each part is a command that prints its own tables, run for itself with one thread and CPU time. If
stopped, the same command goes on with the parts that this commit has not measured. The page is
written when all parts are there, and refused if they are of several commits, or of code that is
not committed.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole
from tabicl_linear.machine import describe, sentence
from tabicl_linear.pages import markdown

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
BENCH = ("tabicl_linear", "bench")
SMALL_DELTA = (
    *("architecture.dim=128", "architecture.depth=6"),
    *("architecture.hidden_dim=256", "architecture.decoder_dim=128"),
)
SMALL_TABLES = ("batch_size=16", "num_rows=128", "min_context=16", "max_features=10")
SMALL = [
    *(f"--override=model.{option}" for option in SMALL_DELTA),
    *(f"--override=data.shapes.{option}" for option in SMALL_TABLES),
]
"""The Delta of the study's small scale."""
PARTS: Mapping[str, Sequence[str]] = {
    "train": [*BENCH, "train", "--rounds=3", "--budget=60"],
    "train-small": [*BENCH, "train", "--rounds=7", *SMALL],
    "train-quick": [*BENCH, "train", "--rounds=7", "--config=configs/quick.yaml"],
    "kernels": [*BENCH, "kernels", "--rounds=5", "--budget=20"],
    "prior": [*BENCH, "prior", "--rounds=71"],
    "fit": [*BENCH, "fit", "--rounds=3", "--rows", "1000", "4000", "16000", "64000"],
    "predict": [*BENCH, "predict", "--rounds=3", "--rows", "1000", "8000", "64000"],
    "start": [*BENCH, "start", "--rounds=5", "--budget=60"],
    "ridge": ["experiments.ridge_cost.run", "--rounds=3"],
}
"""Modules and their options by name of the part; options that all share are `_command`'s."""
CONFIGS = {"train": "deltanet.yaml", "train-small": "study's Delta", "train-quick": "quick.yaml"}
"""What parts train whose targets do not say it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 with the parts measured, 2 if one fails or the page cannot be written."""
    arguments = _parser().parse_args(argv)
    names = arguments.parts or list(PARTS)
    try:
        unknown = sorted(set(names) - set(PARTS))
        if unknown:
            raise ConfigError(f"part {unknown[0]}: give one of {', '.join(PARTS)}.")
        for number, name in enumerate([] if arguments.page_only else names):
            measure(name, arguments.output / name, f"part {number + 1} of {len(names)}")
        if not arguments.parts:
            write(arguments.output, arguments.page)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def measure(name: str, folder: Path, place: str) -> None:
    """Run the command of a part, unless the folder has what this commit measured.

    Raises:
        ConfigError: The command fails.
    """
    commit = describe(torch.device("cpu"))["git_commit"]
    files = list(folder.glob("*.json"))
    if files and _read(folder)["machine"]["git_commit"] == commit:
        print(f"{place}: {name} is measured", flush=True)
        return
    for path in files:
        path.unlink()
    print(f"{place}: {name}", flush=True)
    command = _command(name, folder)
    code = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False).returncode
    if code:
        raise ConfigError(f"{shlex.join(command)} ended with {code}; its message stands above.")


def _command(name: str, folder: Path) -> list[str]:
    module, *options = PARTS[name]
    timing = ["--cpu-time"] if module == BENCH[0] else []  # the other has nothing else
    shared = ["--threads=1", *timing, f"--output={folder.resolve()}"]
    return [sys.executable, "-m", module, *options, *shared]


def write(output: Path, page: Path) -> None:
    """Write the page.

    Raises:
        ConfigError: A part is missing, or not all are of one commit.
    """
    missing = [name for name in PARTS if not list((output / name).glob("*.json"))]
    if missing:
        raise ConfigError(f"--output {output} has no {', '.join(missing)}: measure them first.")
    parts = {name: _read(output / name) for name in PARTS}
    commits = {str(part["machine"]["git_commit"]) for part in parts.values()}
    if len(commits) > 1 or any(commit.endswith("-dirty") for commit in commits):
        raise ConfigError(
            f"--output {output} has parts of {', '.join(sorted(commits))}: measure all of them "
            "at one commit."
        )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    text = environment.get_template("page.md.jinja").render(
        commit=commits.pop(),
        machine=sentence(parts["train"]["machine"]),
        targets=_targets(parts),
        tables={name: _tables(part) for name, part in parts.items()},
        commands={name: _shown(name) for name in PARTS},
    )
    with written_whole(page) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")
    print(f"wrote {page}")


def _read(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _shown(name: str) -> str:
    """The command as a person types it."""
    module, *options = PARTS[name]
    ours = module == BENCH[0]
    words = ["tabicl-linear"] if ours else ["python", "-m", module]
    return shlex.join([*words, *options, "--threads=1", *(["--cpu-time"] if ours else [])])


def _tables(part: Mapping[str, Any]) -> str:
    """All tables of a part, without titles and notes, which the page has of its own."""
    texts = []
    for table in part["tables"]:
        cells = pd.DataFrame(table["cells"])
        rows = [list(map(_text, row)) for row in cells.values]
        texts.append(markdown(list(cells.columns), rows))
    return "\n\n".join(texts)


def _text(cell: Any) -> str:
    if pd.isna(cell):
        return ""
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def _targets(parts: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{CONFIGS[name]}, {target['what']}" if name in CONFIGS else target["what"],
            f"{'at least' if target['at_least'] else 'at most'} {target['wanted']:g}",
            f"{target['measured']:.2f}: {'kept' if target['is_met'] else 'not kept'}",
        ]
        for name, part in parts.items()
        for target in part["targets"]
        if target["is_met"] is not None
    ]
    return markdown(["what", "wanted", "measured"], rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none")
    parser.add_argument("--output", type=Path, default=Path("runs/performance"))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--page-only", action="store_true", help="from what is measured")
    return parser


if __name__ == "__main__":
    sys.exit(main())

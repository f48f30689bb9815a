"""Tables of measurements: as markdown, as plain data, as files."""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tabicl_linear.bench.machine import sentence
from tabicl_linear.bench.timing import Spread
from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """A titled table of plain cells.

    Attributes:
        title: What it shows.
        columns: Names of the columns, with units.
        rows: Cells, row by row.
        notes: What a reader must know to read it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table with its title and notes."""
        lines = [f"### {self.title}", ""]
        lines += ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(map(_text, row)) + " |" for row in self.rows]
        lines += ["", *self.notes] if self.notes else []
        return "\n".join(lines)


class Target(NamedTuple):
    """A ratio that is asked for.

    Attributes:
        what: What is compared.
        wanted: The bound.
        measured: What came out; NaN where it could not be measured.
        at_least: Whether the bound is a lower one.
        applies: Whether this run has the sizes, precision and device that the bound is meant for.
    """

    what: str
    wanted: float
    measured: float
    at_least: bool
    applies: bool = True

    @property
    def is_met(self) -> bool | None:
        """Whether the measured ratio keeps to the bound; None where the run cannot tell."""
        if not self.applies or math.isnan(self.measured):
            return None
        if self.at_least:
            return self.measured >= self.wanted
        return self.measured <= self.wanted


@dataclass(frozen=True)
class Report:
    """What one command measured.

    Attributes:
        name: Stem of its files.
        command: How to repeat it.
        machine: What it was measured on.
        settings: Shapes and repeats.
        tables: The tables.
        targets: Bounds and whether they are kept.
        raw: Every timing, in seconds, and other plain data.
    """

    name: str
    command: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    tables: Sequence[Table]
    targets: Sequence[Target] = ()
    raw: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """Machine, tables and targets."""
        parts = [f"## {self.name}", f"`{self.command}`", sentence(self.machine)]
        parts += [table.markdown() for table in self.tables]
        if self.targets:
            parts.append("\n".join(map(_target_line, self.targets)))
        return "\n\n".join(parts) + "\n"

    def data(self) -> dict[str, Any]:
        """Everything as plain data; NaN becomes None."""
        plain = asdict(self)
        plain["targets"] = [{**t._asdict(), "is_met": t.is_met} for t in self.targets]
        cleaned: dict[str, Any] = _without_nan(plain)
        return cleaned

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.json and NAME.md, each whole or not at all; returns their paths.

        Raises:
            ConfigError: The folder cannot be written.
        """
        texts = {
            f"{self.name}.json": json.dumps(self.data(), indent=1, allow_nan=False) + "\n",
            f"{self.name}.md": self.markdown(),
        }
        writers = {name: _writer(text) for name, text in texts.items()}
        return [write_whole(folder / name, writer) for name, writer in writers.items()]


def write_whole(path: Path, writer: Callable[[Path], object]) -> Path:
    """Let `writer` write a file of a temporary name and put it in its place.

    Raises:
        ConfigError: The folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            writer(partial)
    except OSError as error:
        reason = f"--output {path.parent}: {error.strerror}; name another folder."
        raise ConfigError(reason) from error
    return path


def check_folder(folder: Path) -> None:
    """Check that files can be written to a folder, without making it.

    Raises:
        ConfigError: They cannot.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"--output {folder}: {there} is no folder; name another one.")
    if not os.access(there, os.W_OK):
        raise ConfigError(f"--output {folder}: no right to write; name another folder.")


def spread_text(value: Spread) -> str | None:
    """Median and quartiles; None where there are none."""
    if math.isnan(value.median):
        return None
    return f"{number(value.median)} ({number(value.low)}-{number(value.high)})"


def number(value: float) -> str:
    """Three digits that count, without an exponent, thousands apart."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    return number(cell) if isinstance(cell, float) else str(cell)


def _target_line(target: Target) -> str:
    bound = f"{'at least' if target.at_least else 'at most'} {target.wanted:g} wanted"
    if math.isnan(target.measured):
        return f"- {target.what}: {bound}, not measured here."
    verdict = {
        True: "kept",
        False: "not kept",
        None: "no verdict, it is meant for other sizes, precision or device",
    }[target.is_met]
    return f"- {target.what}: {bound}, {target.measured:.2f} measured: {verdict}."


def _writer(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

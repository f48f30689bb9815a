"""Tables of measurements: as markdown, as plain data, as files."""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tabicl_linear.bench.machine import sentence
from tabicl_linear.bench.timing import Contestant, Spread, Timings, ratios, spread
from tabicl_linear.errors import ConfigError

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
    """

    what: str
    wanted: float
    measured: float
    at_least: bool

    @property
    def is_met(self) -> bool:
        """Whether the measured ratio keeps to the bound."""
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
    make_folder(path.parent)
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        writer(partial)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise _unwritable(path.parent, error) from error
    return path


def make_folder(folder: Path) -> None:
    """Make a folder for files.

    Raises:
        ConfigError: It cannot be made, or not be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"--output {folder}: no right to write; name another folder.")


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"--output {folder}: {error.strerror}; name another folder.")


def contest_table(
    title: str,
    unit: str,
    contestants: Sequence[Contestant],
    timings: Timings,
    peaks: dict[tuple[str, str], int | None],
    notes: Sequence[str] = (),
    *,
    slower: bool = False,
) -> Table:
    """One row per contestant: time, throughput, ratio to every rival, memory, FLOP/s, bytes/s.

    Args:
        title: What the table shows.
        unit: Name of the throughput.
        contestants: The rows.
        timings: What they took.
        peaks: What memory they took.
        notes: What a reader must know.
        slower: Give ratios as times slower: for rivals that are floors.
    """
    word = "slower" if slower else "faster"
    rivals = list(dict.fromkeys(c.name for c in contestants if c.role == "rival"))
    columns = [
        "",
        "ms (quartiles)",
        unit,
        *(f"times {word} than {rival} (quartiles)" for rival in rivals),
        "peak MB",
        "GFLOP/s",
        "GB/s",
    ]
    rows: list[list[Cell]] = []
    for c in contestants:
        seconds = spread(timings[c.key])
        peak = peaks.get(c.key)
        name = f"{c.group}: {c.name}" if c.group else c.name
        rows.append(
            [
                f"*{name}*" if c.role == "ceiling" else name,
                spread_text(Spread(*(1000 * value for value in seconds))),
                _rate(c.units, seconds.median),
                *(_against(c, rival, timings, slower) for rival in rivals),
                None if peak is None else number(peak / 1e6),
                _rate(c.flops / 1e9, seconds.median),
                _rate(c.moved / 1e9, seconds.median),
            ]
        )
    return Table(title, columns, rows, notes)


def raw_timings(
    contestants: Sequence[Contestant],
    timings: Timings,
    peaks: dict[tuple[str, str], int | None],
) -> list[dict[str, Any]]:
    """Every timing with what it is the time of, as plain data."""
    return [
        {
            "name": c.name,
            "group": c.group,
            "role": c.role,
            "units": c.units,
            "flops": c.flops,
            "bytes": c.moved,
            "median_seconds": spread(timings[c.key]).median,
            "seconds": timings[c.key],
            "peak_bytes": peaks.get(c.key),
            "ratios": {
                rival.name: ratios(timings[rival.key], timings[c.key])._asdict()
                for rival in contestants
                if rival.role == "rival" and rival.group == c.group and rival is not c
            },
        }
        for c in contestants
    ]


def _against(c: Contestant, rival: str, timings: Timings, slower: bool) -> str | None:
    key = (c.group, rival)
    if key == c.key or key not in timings or c.role == "ceiling":
        return None
    pair = (c.key, key) if slower else (key, c.key)
    return spread_text(ratios(*(timings[side] for side in pair)))


def spread_text(value: Spread) -> str | None:
    """Median and quartiles; None where there are none."""
    if math.isnan(value.median):
        return None
    return f"{number(value.median)} ({number(value.low)}-{number(value.high)})"


def _rate(amount: float, seconds: float) -> str | None:
    return number(amount / seconds) if amount and seconds > 0 else None


def number(value: float) -> str:
    """Three digits that count, without an exponent, thousands apart."""
    if value == 0 or not math.isfinite(value):
        return str(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    return number(cell) if isinstance(cell, float) else str(cell)


def _target_line(target: Target) -> str:
    bound = "at least" if target.at_least else "at most"
    if math.isnan(target.measured):
        return f"- {target.what}: {bound} {target.wanted:g} wanted, not measured here."
    verdict = "kept" if target.is_met else "not kept"
    return f"- {target.what}: {bound} {target.wanted:g} wanted, {target.measured:.2f}: {verdict}."


def _writer(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

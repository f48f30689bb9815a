"""Tables of measurements, as markdown and as plain data, and the figures beside them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from tabicl_linear.bench.cases import Case, Measured, Spread
from tabicl_linear.machine import sentence
from tabicl_linear.pages import markdown

METHOD = (
    "Medians and quartiles of {} rounds after warm-up, in which cases take turns; ratios are "
    "quotients of two times of the same round. Rates are those of the median time. `peak MB` "
    "(10^6 bytes) is what a call needs beyond what was held before it. *Upper bounds*, in italics, "
    "are what this machine reached in the same rounds."
)
"""How the numbers in a table of cases were measured."""


class Table(NamedTuple):
    """A titled table of texts and numbers, with notes for its reader."""

    title: str
    cells: pd.DataFrame
    notes: str = ""

    def markdown(self) -> str:
        """The table with its title and notes."""
        texts = [[_text(cell) for cell in row] for row in self.cells.values.tolist()]
        table = markdown(list(self.cells.columns), texts)
        return "\n".join([f"### {self.title}", "", table, *(["", self.notes] * bool(self.notes))])


class Target(NamedTuple):
    """A required ratio and the measured one.

    Attributes:
        what: What is compared.
        wanted: The required ratio.
        measured: The measured ratio; NaN if it could not be measured.
        at_least: Whether `wanted` is a lower bound, otherwise an upper one.
        applies: Whether this run has the sizes, precision and device that the target is meant for.
    """

    what: str
    wanted: float
    measured: float
    at_least: bool
    applies: bool = True

    @property
    def is_met(self) -> bool | None:
        """Whether the measured ratio meets the requirement; None if the run cannot tell."""
        if not self.applies or math.isnan(self.measured):
            return None
        return bool(self.measured >= self.wanted if self.at_least else self.measured <= self.wanted)

    def line(self) -> str:
        """The verdict."""
        bound = f"{'at least' if self.at_least else 'at most'} {self.wanted:g} wanted"
        if math.isnan(self.measured):
            return f"- {self.what}: {bound}, not measured here."
        meant = "no verdict, it is meant for other sizes, precision or device"
        verdict = {True: "kept", False: "not kept", None: meant}[self.is_met]
        return f"- {self.what}: {bound}, {self.measured:.2f} measured: {verdict}."


@dataclass(frozen=True)
class Report:
    """The results of one command, as tables, figure and plain data.

    `raw` holds every timing in seconds and other plain data. The command line fills in `command`
    and `machine` (`machine.describe`) and writes the files.
    """

    name: str
    settings: dict[str, Any]
    tables: Sequence[Table]
    targets: Sequence[Target] = ()
    raw: dict[str, Any] = field(default_factory=dict)
    figure: Figure | None = None
    command: str = ""
    machine: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """Machine, tables and targets."""
        parts = [f"## {self.name}", f"`{self.command}`", sentence(self.machine)]
        parts += [table.markdown() for table in self.tables]
        parts += ["\n".join(target.line() for target in self.targets)] * bool(self.targets)
        return "\n\n".join(parts) + "\n"

    def json(self) -> str:
        """Everything as plain data; NaN becomes null."""
        tables = [
            {**t._asdict(), "cells": t.cells.astype(object).to_dict("records")} for t in self.tables
        ]
        targets = [{**t._asdict(), "is_met": t.is_met} for t in self.targets]
        figure = {} if self.figure is None else {"figure": f"{self.name}.png"}
        everything = {**vars(self), "tables": tables, "targets": targets}
        everything |= {"settings": self.settings | figure, "figure": None}
        return pd.Series(everything).to_json(indent=1, double_precision=15) + "\n"


def case_table(
    title: str, unit: str, measured: Measured, notes: str = "", *, slower: bool = False
) -> Table:
    """Return a table with a row per case: time, throughput, ratios to baselines, memory, rates.

    With `slower`, ratios are times relative to the baseline's, otherwise speeds. If there are
    notes, `METHOD` is added to them.
    """
    rows = [_cells(case, unit, measured, slower) for case in measured.cases]
    notes = notes and notes + METHOD.format(len(measured.seconds))
    return Table(title, pd.DataFrame(rows).dropna(axis=1, how="all"), notes)


def _cells(case: Case, unit: str, measured: Measured, slower: bool) -> dict[str, str | None]:
    seconds, peak = measured.spread(case.key), measured.peaks.get(case.key)
    name = f"{case.group}: {case.name}" if case.group else case.name
    is_bound = case.role == "bound"
    cells = {
        "": f"*{name}*" if is_bound else name,
        "ms (quartiles)": spread_text(seconds, 1000),
        unit: _rate(case.units, seconds),
    }
    title = f"times {'as long as' if slower else 'faster than'} {{}} (quartiles)"
    cells |= {title.format(c.name): None for c in measured.cases if c.role == "baseline"}
    for c in measured.baselines(case):
        pair = (case.key, c.key) if slower else (c.key, case.key)
        cells[title.format(c.name)] = spread_text(measured.ratio(*pair))
    return cells | {
        "peak MB": None if peak is None or is_bound else number(peak / 1e6),
        "GFLOP/s": _rate(case.flops / 1e9, seconds),
        "GB/s": _rate(case.moved / 1e9, seconds),
    }


def spread_text(value: Spread, factor: float = 1.0) -> str | None:
    """Median and quartiles; None where there are none."""
    median, low, high = (number(factor * part) for part in value)
    return None if math.isnan(value.median) else f"{median} ({low}-{high})"


def number(value: float) -> str:
    """Format with three significant digits and thousands separators, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def _rate(amount: float, seconds: Spread) -> str | None:
    return number(amount / seconds.median) if amount and seconds.median > 0 else None


def _text(cell: Any) -> str:
    if pd.isna(cell):
        return ""
    return number(cell) if isinstance(cell, float) else str(cell)

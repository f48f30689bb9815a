"""Rows of the verdict table."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

Status = Literal["ok", "FAIL", "skipped"]


class Result(NamedTuple):
    """One row.

    Attributes:
        name: What was checked.
        status: Verdict.
        detail: Numbers, or the reason.
    """

    name: str
    status: Status
    detail: str


class Report(NamedTuple):
    """The results of a process: its rows, and the units that it finished."""

    results: list[Result]
    finished: set[str]


def append(path: Path, *, unit: str | None = None, result: Result | None = None) -> None:
    """Add a row or a finished unit to the file of a process; at once, since it may be killed."""
    line = {"finished": unit} if result is None else result._asdict()
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path) -> Report:
    """The results that `append` wrote; an incomplete last line is ignored."""
    report = Report([], set())
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "finished" in entry:
            report.finished.add(entry["finished"])
        else:
            report.results.append(Result(**entry))
    return report


def table(results: Sequence[Result]) -> str:
    """The verdict table as markdown, readable as plain text."""
    rows = [Result("check", "verdict", "detail"), *results]  # type: ignore[arg-type]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, f"|{'-' * (widths[0] + 2)}|{'-' * (widths[1] + 2)}|---|")
    return "\n".join([*lines, "", verdict(results)])


def verdict(results: Iterable[Result]) -> str:
    """The number of rows with each status."""
    statuses = [result.status for result in results]
    counts = {status: statuses.count(status) for status in ("ok", "FAIL", "skipped")}
    return f"{counts['ok']} ok, {counts['FAIL']} FAIL, {counts['skipped']} skipped"


def _line(row: Result, widths: Sequence[int]) -> str:
    cells = [row.name.ljust(widths[0]), row.status.ljust(widths[1])]
    return "| " + " | ".join([*cells, row.detail.replace("|", "/")]) + " |"

"""Tables of contests: time, throughput, ratios, memory and work of every contestant."""

from collections.abc import Sequence
from typing import Any

from tabicl_linear.bench.report import Cell, Table, number, spread_text
from tabicl_linear.bench.timing import Contestant, Spread, Timings, ratios, spread

Peaks = dict[tuple[str, str], int | None]
"""Bytes by group and name; None where they are not known."""


def method(rounds: int, *, warmup: int = 1) -> str:
    """How the numbers of a contest come about, for a reader of its table."""
    return (
        f"Medians and quartiles of {rounds} rounds, after {warmup} of warm-up. In a round each "
        "contestant runs once, every second round in reverse order. Ratios are quotients of two "
        "times of the same round, their median and quartiles: a load that drifts cancels out. "
        "Rates are those of the median time. `peak MB` (10^6 bytes) is what a call takes beyond "
        "what was held before it. *Ceilings* are what this machine reached in the same rounds."
    )


def contest_table(
    title: str,
    unit: str,
    contestants: Sequence[Contestant],
    timings: Timings,
    peaks: Peaks,
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
        slower: Give ratios as multiples of the rival's time: for rivals that are floors.
    """
    word = "times as long as" if slower else "times faster than"
    rivals = list(dict.fromkeys(c.name for c in contestants if c.role == "rival"))
    columns = [
        "",
        "ms (quartiles)",
        unit,
        *(f"{word} {rival} (quartiles)" for rival in rivals),
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
                _rate_text(c.units, seconds.median),
                *(_against(c, rival, timings, slower) for rival in rivals),
                None if peak is None else number(peak / 1e6),
                _rate_text(c.flops / 1e9, seconds.median),
                _rate_text(c.moved / 1e9, seconds.median),
            ]
        )
    return Table(title, columns, rows, notes)


def raw_timings(
    contestants: Sequence[Contestant], timings: Timings, peaks: Peaks
) -> list[dict[str, Any]]:
    """Every timing with what it is the time of, as plain data; ratios say how much faster."""
    entries = []
    for c in contestants:
        median = spread(timings[c.key]).median
        entries.append(
            {
                "name": c.name,
                "group": c.group,
                "role": c.role,
                "units": c.units,
                "flops": c.flops,
                "bytes": c.moved,
                "median_seconds": median,
                "units_per_second": _rate(c.units, median),
                "flops_per_second": _rate(c.flops, median),
                "bytes_per_second": _rate(c.moved, median),
                "seconds": timings[c.key],
                "peak_bytes": peaks.get(c.key),
                "ratios": {
                    rival.name: ratios(timings[rival.key], timings[c.key])._asdict()
                    for rival in contestants
                    if rival.role == "rival" and rival.group == c.group and rival is not c
                },
            }
        )
    return entries


def _against(c: Contestant, rival: str, timings: Timings, slower: bool) -> str | None:
    key = (c.group, rival)
    if key == c.key or key not in timings or c.role == "ceiling":
        return None
    pair = (c.key, key) if slower else (key, c.key)
    return spread_text(ratios(*(timings[side] for side in pair)))


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if amount and seconds > 0 else None


def _rate_text(amount: float, seconds: float) -> str | None:
    rate = _rate(amount, seconds)
    return None if rate is None else number(rate)

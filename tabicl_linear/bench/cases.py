"""Timing of cases in turn: our code, its baselines and upper bounds in the same rounds."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch
from torch.utils.benchmark import timer
from tqdm import tqdm

from tabicl_linear.bench.clock import timed
from tabicl_linear.machine import peak_bytes

Role = Literal["ours", "baseline", "bound"]
Key = tuple[str, str]


class Options(NamedTuple):
    """How to measure: the options shared by all subcommands.

    Attributes:
        device: Device that computes.
        rounds: Number of rounds, without warm-up.
        budget: Seconds after which a case that has enough rounds is skipped.
        quick: Whether to use small shapes.
        clock: Returns the time in seconds. With `time.process_time`, other processes on the machine
            do not count.
    """

    device: torch.device
    rounds: int = 15
    budget: float = 30.0
    quick: bool = False
    clock: Callable[[], float] = timer


class Case(NamedTuple):
    """Something to time.

    Attributes:
        name: Its name in tables, unique within its group.
        call: Executes it once.
        role: All cases of a group except bounds are compared with its baselines. A bound shows the
            best that the machine can do.
        group: Only cases of the same group are compared.
        units: Units that one call processes; their name is in the table.
        flops: Floating-point operations of one call; 0 if not counted.
        moved: Minimum bytes that one call reads and writes; 0 if not counted.
        prepare: Called before every turn, outside the timing.
    """

    name: str
    call: Callable[[], object]
    role: Role = "ours"
    group: str = ""
    units: float = 0.0
    flops: float = 0.0
    moved: float = 0.0
    prepare: Callable[[], object] = lambda: None

    @property
    def key(self) -> Key:
        """Group and name."""
        return self.group, self.name


class Spread(NamedTuple):
    """Median and quartiles; NaN where there are none."""

    median: float
    low: float
    high: float


class Measured(NamedTuple):
    """Results of all cases.

    Attributes:
        cases: The cases, in their order.
        seconds: One row per round, one column per case; NaN if skipped.
        peaks: Peak memory of each case in bytes; None if the device does not tell.
    """

    cases: Sequence[Case]
    seconds: pd.DataFrame
    peaks: dict[Key, int | None]

    def spread(self, key: Key) -> Spread:
        """Median and quartiles of a case."""
        return _spread(self.seconds[key])

    def ratio(self, slow: Key, fast: Key) -> Spread:
        """How many times longer `slow` took than `fast`: the spread of quotients within rounds."""
        return _spread(self.seconds[slow] / self.seconds[fast])

    def baselines(self, case: Case) -> list[Case]:
        """Return the cases that a case is compared with."""
        own = [c for c in self.cases if c.role == "baseline" and c.group == case.group]
        return [] if case.role == "bound" else [c for c in own if c is not case]

    def records(self) -> list[dict[str, Any]]:
        """Return every case with its timings as plain data; ratios say how much faster it is."""
        records = []
        for case in self.cases:
            record = {k: v for k, v in case._asdict().items() if k not in ("call", "prepare")}
            median = self.spread(case.key).median
            record |= {f"{k}_per_second": record[k] / median for k in ("units", "flops", "moved")}
            record |= {"median_seconds": median, "seconds": self.seconds[case.key].tolist()}
            ratios = {c.name: self.ratio(c.key, case.key)._asdict() for c in self.baselines(case)}
            records.append(record | {"peak_bytes": self.peaks[case.key], "ratios": ratios})
        return records


def _spread(values: "pd.Series[float]") -> Spread:
    return Spread(*values.quantile([0.5, 0.25, 0.75]))


def measure(
    cases: Sequence[Case], options: Options, label: str, *, warmup: int = 1, least: int = 3
) -> Measured:
    """Time all cases in turn, round by round, every second round in reverse order.

    Thus no case always follows the same neighbour, and a drifting load affects all alike. Warm-up
    rounds come first, then one round that measures peak memory.

    Args:
        cases: What to time.
        options: Rounds, budget, device and clock.
        label: Text of the progress bar.
        warmup: Number of warm-up rounds.
        least: Rounds that each case gets whatever its budget; if 0, the call that measured its peak
            memory may be its only timing.
    """
    seconds = pd.DataFrame({c.key: math.nan for c in cases}, index=range(options.rounds))
    first, peaks = dict[Key, float](), dict[Key, int | None]()
    with progress(label, len(cases) * (warmup + 1 + options.rounds)) as bar:
        for number in range(-warmup - 1, options.rounds):
            for case in cases if number % 2 else reversed(cases):
                case.prepare()
                if number < -1:
                    case.call()
                elif number == -1:
                    start = options.clock()
                    peaks[case.key] = peak_bytes(case.call, options.device)
                    first[case.key] = options.clock() - start
                else:
                    own = seconds[case.key]
                    if own.sum() + first[case.key] <= options.budget or own.count() < least:
                        seconds.loc[number, case.key] = timed(case.call, options.clock)
                bar.update()
    for key in seconds.columns[seconds.isna().all()]:
        seconds.loc[0, key] = first[key]
    return Measured(cases, seconds, peaks)


def progress(label: str, total: int) -> "tqdm[Any]":
    """Return a progress bar: updated in place on a terminal, otherwise printed at intervals."""
    return tqdm(
        desc=label,
        total=total,
        bar_format="{desc}: {percentage:3.0f}%, {remaining} left",
        mininterval=0.2 if sys.stderr.isatty() else 10.0,
        dynamic_ncols=True,
    )


def copy(options: Options) -> Case:
    """Return the bound of bandwidth: a copy too large for caches; bytes read and written count."""
    num_bytes = 2**22 if options.quick else 2**28
    source = torch.ones(num_bytes // 4, device=options.device)
    target = torch.empty_like(source)
    name = f"copy of {num_bytes / 2**20:.0f} MiB"
    return Case(name, lambda: target.copy_(source), "bound", moved=2.0 * num_bytes)


def matmul(
    name: str, shape: tuple[int, int, int, int], *, dtype: torch.dtype, device: torch.device
) -> Case:
    """Return the bound of arithmetic: products `[b n k] @ [b k m]` for the shape (b, n, k, m)."""
    b, n, k, m = shape
    x = torch.randn(b, n, k, device=device).to(dtype)
    y = torch.randn(b, k, m, device=device).to(dtype)
    return Case(name, lambda: x @ y, "bound", flops=2.0 * math.prod(shape))

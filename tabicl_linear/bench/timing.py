"""Contestants that take turns, and the clock that times them."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import torch

Role = Literal["ours", "rival", "ceiling"]


class Contestant(NamedTuple):
    """Something to time.

    Attributes:
        name: What it is; unique within its group.
        call: One execution of it.
        role: Rivals are what the others of their group are compared with; a ceiling is what the
            machine can do at best.
        group: Only contestants of one group are compared.
        units: What one call gets through, in the unit of the table.
        flops: Floating-point operations of one call; 0 where they are not counted.
        moved: Bytes that one call must read and write at least; 0 where they are not counted.
    """

    name: str
    call: Callable[[], object]
    role: Role = "ours"
    group: str = ""
    units: float = 0.0
    flops: float = 0.0
    moved: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """Group and name."""
        return self.group, self.name


class Ticker(Protocol):
    """What is told of progress."""

    def advance(self, done: float, total: float) -> None:
        """`done` of `total` is finished."""


Timings = dict[tuple[str, str], list[float]]
"""Seconds of every round by group and name; NaN where a contestant sat a round out."""


def timed(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call; on CUDA between two events, all work of the call included."""
    if device.type != "cuda":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize(device)
    return begin.elapsed_time(end) / 1000


def turns(count: int, number: int) -> range:
    """Whose turn it is, in order, in round `number`; every second round runs backwards.

    So nobody always follows the same neighbour, and a load that drifts hits all alike.
    """
    return range(count) if number % 2 == 0 else range(count - 1, -1, -1)


def compete(
    contestants: Sequence[Contestant],
    *,
    rounds: int,
    device: torch.device,
    warmup: int = 1,
    budget: float = math.inf,
    progress: Ticker | None = None,
) -> Timings:
    """Time all contestants in turn, round by round; rounds of warm-up are run and not kept.

    Args:
        contestants: Who takes part.
        rounds: Rounds that are kept.
        device: Where they run.
        warmup: Rounds before those.
        budget: Seconds after which a contestant sits out, once it has three rounds.
        progress: Told after every turn.
    """
    timings: Timings = {contestant.key: [] for contestant in contestants}
    for number in range(warmup + rounds):
        for place, index in enumerate(turns(len(contestants), number)):
            contestant = contestants[index]
            kept = timings[contestant.key]
            spent = [seconds for seconds in kept if not math.isnan(seconds)]
            sits_out = len(spent) >= 3 and sum(spent) > budget
            seconds = math.nan if sits_out else timed(contestant.call, device)
            if number >= warmup:
                kept.append(seconds)
            if progress is not None:
                progress.advance(number + (place + 1) / len(contestants), warmup + rounds)
    return timings


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of all values that are not NaN; NaN where there are none."""
    known = torch.tensor([v for v in values if not math.isnan(v)], dtype=torch.float64)
    if not len(known):
        return Spread(math.nan, math.nan, math.nan)
    low, median, high = known.quantile(
        torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    ).tolist()
    return Spread(median, low, high)


def ratios(rival: Sequence[float], ours: Sequence[float]) -> Spread:
    """How many times faster we are than a rival: quotients within rounds, their spread."""
    return spread([theirs / mine for theirs, mine in zip(rival, ours, strict=True)])

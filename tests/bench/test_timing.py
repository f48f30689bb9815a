"""Turns, medians and ratios of the bench command."""

import math
import time

import pytest
import torch

from tabicl_linear.bench.timing import Contestant, compete, ratios, spread, timed, turns

CPU = torch.device("cpu")


class Recorder:
    """A ticker that remembers what it was told."""

    def __init__(self):
        self.told = []

    def advance(self, done, total):
        self.told.append((done, total))


def test_contestants_take_turns_and_every_second_round_runs_backwards():
    calls = []
    field = [Contestant(name, lambda name=name: calls.append(name)) for name in "abc"]
    timings = compete(field, rounds=2, warmup=1, device=CPU)
    assert "".join(calls) == "abc" + "cba" + "abc"
    assert {key: len(seconds) for key, seconds in timings.items()} == {
        ("", name): 2 for name in "abc"
    }


def test_the_order_of_turns_is_balanced_over_two_rounds():
    places = [list(turns(5, number)) for number in (0, 1)]
    assert [sum(round_.index(i) for round_ in places) for i in range(5)] == [4] * 5


def test_warm_up_is_run_and_not_kept():
    calls = []

    def slow_at_first():
        time.sleep(0.05 if not calls else 0.0)
        calls.append(None)

    timings = compete([Contestant("a", slow_at_first)], rounds=3, warmup=1, device=CPU)
    assert len(calls) == 4
    assert max(timings["", "a"]) < 0.05


def test_who_is_over_the_budget_sits_out_after_three_rounds():
    calls = []
    field = [
        Contestant("slow", lambda: (calls.append("slow"), time.sleep(0.02))),
        Contestant("fast", lambda: calls.append("fast")),
    ]
    timings = compete(field, rounds=6, warmup=0, budget=0.05, device=CPU)
    assert calls.count("slow") == 3
    assert calls.count("fast") == 6
    assert [math.isnan(seconds) for seconds in timings["", "slow"]] == [False] * 3 + [True] * 3
    assert not any(map(math.isnan, timings["", "fast"]))


def test_progress_ends_at_the_total():
    recorder = Recorder()
    compete([Contestant(n, lambda: None) for n in "ab"], rounds=2, device=CPU, progress=recorder)
    done = [d for d, _ in recorder.told]
    assert done == sorted(done)
    assert recorder.told[-1] == (3, 3)


def test_seconds_are_seconds():
    assert timed(lambda: time.sleep(0.03), CPU) == pytest.approx(0.03, abs=0.02)


def test_spread_is_median_and_quartiles_without_missing_rounds():
    assert spread([4.0, 1.0, math.nan, 2.0, 3.0, 5.0]) == (3.0, 2.0, 4.0)
    assert all(map(math.isnan, spread([math.nan])))


def test_ratios_are_taken_within_rounds():
    # A machine that slows down sevenfold in the last round moves no ratio.
    assert ratios([2.0, 4.0, 42.0], [1.0, 2.0, 21.0]) == (2.0, 2.0, 2.0)
    assert ratios([1.0, math.nan, 9.0], [1.0, 5.0, 3.0]).median == 2.0

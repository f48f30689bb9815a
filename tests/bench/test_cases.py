"""Cases: turns, budgets, ratios within rounds and tables of them."""

import math
import sys
import time

import pandas as pd
import pytest
import torch
from bench.fake_clock import FakeClock

from tabicl_linear.bench.cases import Case, Measured, Options, measure
from tabicl_linear.bench.measurement_tables import case_table

OPTIONS = Options(torch.device("cpu"), rounds=2)
FIELD = [
    Case("ours", lambda: None, units=100, flops=4e9, moved=2e9),
    Case("theirs", lambda: None, "baseline", units=100, flops=4e9),
    Case("matmul", lambda: None, "bound", flops=8e9),
]
SECONDS = pd.DataFrame(
    {
        ("", "ours"): [0.5, 0.4, 1.0],
        ("", "theirs"): [1.5, 1.6, 2.0],
        ("", "matmul"): [0.25, 0.25, 0.25],
    }
)
PEAKS = {("", "ours"): 3_000_000, ("", "theirs"): None, ("", "matmul"): None}
MEASURED = Measured(FIELD, SECONDS, PEAKS)


@pytest.fixture
def clock():
    """What cases are timed with."""
    return FakeClock()


def sleeper(name, calls, clock, seconds):
    return Case(name, lambda: (calls.append(name), clock.sleep(seconds)))


def test_cases_take_turns_and_every_second_round_runs_backwards(clock):
    calls = []
    measured = measure(
        [sleeper(name, calls, clock, 0.021) for name in "abc"],
        OPTIONS._replace(clock=clock),
        "test",
    )
    assert "".join(calls) in ("abccbaabccba", "cbaabccbaabc")  # warm-up, peaks and two rounds
    assert measured.seconds.shape == (2, 3)
    assert measured.seconds.to_numpy() == pytest.approx(0.021)


@pytest.mark.parametrize(
    ("clock", "least", "most"), [(time.process_time, 0.03, 0.1), (time.perf_counter, 0.13, 60)]
)
def test_cpu_time_leaves_out_what_the_process_waits_for(clock, least, most):
    def call():
        time.sleep(0.1)
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass

    measured = measure([Case("a", call)], OPTIONS._replace(clock=clock), "test")
    assert least <= measured.spread(("", "a")).median < most


def test_short_calls_are_repeated_and_their_mean_counts(clock):
    calls = []
    case = sleeper("a", calls, clock, 0.001)
    measured = measure([case], OPTIONS._replace(clock=clock), "test")
    assert len(calls) > 20
    assert measured.spread(case.key).median == pytest.approx(0.001)


def test_who_is_over_the_budget_sits_out_after_the_least_rounds(clock):
    calls = []
    field = [sleeper("slow", calls, clock, 0.03), sleeper("fast", calls, clock, 0.021)]
    options = OPTIONS._replace(clock=clock, rounds=5, budget=0.1)
    seconds = measure(field, options, "test", warmup=0).seconds
    assert seconds["", "slow"].isna().tolist() == [False] * 3 + [True] * 2
    options = options._replace(budget=0.01)
    measured = measure(field[:1], options, "test", warmup=0, least=0)
    assert measured.seconds["", "slow"].isna().tolist() == [False] + [True] * 4  # of its peak
    assert measured.spread(("", "slow")).median == pytest.approx(0.03)


def test_a_case_is_prepared_before_every_turn_outside_its_time(clock):
    prepared = []
    case = Case(
        "a",
        lambda: clock.sleep(0.021),
        prepare=lambda: (clock.sleep(0.1), prepared.append(0)),
    )
    assert measure([case], OPTIONS._replace(clock=clock), "test").seconds[
        "", "a"
    ].max() == pytest.approx(0.021)
    assert len(prepared) == 4


def test_progress_says_the_time_left(capsys):
    measure([Case("a", lambda: None)], OPTIONS, "some label")
    assert "some label: 100%, 00:00 left" in capsys.readouterr().err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is Linux's")
def test_peaks_are_those_of_each_case():
    big = Case("big", lambda: torch.ones(10_000_000))
    peaks = measure([big, Case("small", lambda: None)], OPTIONS, "test").peaks
    assert peaks["", "small"] < 4_000_000 < 36_000_000 < peaks["", "big"]


def test_ratios_are_taken_within_rounds():
    # A machine that slows down sevenfold in the last round moves no ratio.
    seconds = pd.DataFrame({("", "a"): [2.0, 4.0, 42.0, math.nan], ("", "b"): [1.0, 2.0, 21.0, 1]})
    measured = Measured([], seconds, {})
    assert measured.ratio(("", "a"), ("", "b")) == (2.0, 2.0, 2.0)
    assert measured.spread(("", "a")) == (4.0, 3.0, 23.0)


def test_a_table_holds_median_rate_ratio_memory_and_work():
    cells = case_table("Title", "rows/s", MEASURED).cells
    ours, theirs, bound = cells.to_dict("records")
    faster = "times faster than theirs (quartiles)"
    assert ours["ms (quartiles)"] == "500 (450-750)"
    assert ours["rows/s"] == "200"
    assert ours[faster] == "3.00 (2.50-3.50)"  # of 3, 4 and 2 in the three rounds
    assert (ours["peak MB"], ours["GFLOP/s"], ours["GB/s"]) == ("3.00", "8.00", "4.00")
    assert pd.isna(theirs[faster])
    assert pd.isna(theirs["peak MB"])
    assert (bound[""], bound["GFLOP/s"]) == ("*matmul*", "32.0")
    assert pd.isna(bound[faster])


def test_a_floor_is_compared_the_other_way():
    (text, *_) = case_table("Title", "rows/s", MEASURED, slower=True).cells[
        "times as long as theirs (quartiles)"
    ]
    assert text == "0.333 (0.292-0.417)"


def test_baselines_count_in_their_own_group_alone():
    field = [Case("ours", lambda: None, group="a"), Case("x", lambda: None, "baseline", "b")]
    seconds = pd.DataFrame({case.key: [1.0] for case in field})
    measured = Measured(field, seconds, {case.key: None for case in field})
    assert list(case_table("Title", "rows/s", measured).cells.columns) == ["", "ms (quartiles)"]
    assert measured.records()[0]["ratios"] == {}


def test_plain_data_holds_rates_ratios_and_memory():
    ours, theirs, bound = MEASURED.records()
    assert ours["seconds"] == [0.5, 0.4, 1.0]
    assert (ours["units_per_second"], ours["flops_per_second"]) == (200, 8e9)
    assert ours["moved_per_second"] == 4e9
    assert ours["ratios"]["theirs"] == {"median": 3.0, "low": 2.5, "high": 3.5}
    assert ours["peak_bytes"] == 3_000_000
    assert theirs["ratios"] == bound["ratios"] == {}
    assert (bound["role"], bound["flops_per_second"]) == ("bound", 32e9)


def test_the_notes_name_the_rounds():
    assert "of 3 rounds after warm-up" in case_table("Title", "rows/s", MEASURED, "A note. ").notes
    assert case_table("Title", "rows/s", MEASURED).notes == ""

"""Tables of contests, from timings that are made up."""

from tabicl_linear.bench.contest import contest_table, method, raw_timings
from tabicl_linear.bench.timing import Contestant

FIELD = [
    Contestant("ours", lambda: None, units=100, flops=4e9, moved=2e9),
    Contestant("theirs", lambda: None, "rival", units=100, flops=4e9),
    Contestant("matmul", lambda: None, "ceiling", flops=8e9),
]
TIMINGS = {
    ("", "ours"): [0.5, 0.4, 1.0],
    ("", "theirs"): [1.5, 1.6, 2.0],
    ("", "matmul"): [0.25, 0.25, 0.25],
}
PEAKS = {("", "ours"): 3_000_000, ("", "theirs"): None}


def test_a_table_holds_median_rate_ratio_memory_and_work():
    table = contest_table("Title", "rows/s", FIELD, TIMINGS, PEAKS)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    ours, theirs, ceiling = rows
    faster = "times faster than theirs (quartiles)"
    assert ours["ms (quartiles)"] == "500 (450-750)"
    assert ours["rows/s"] == "200"
    assert ours[faster] == "3.00 (2.50-3.50)"  # of 3, 4 and 2 in the three rounds
    assert ours["peak MB"] == "3.00"
    assert ours["GFLOP/s"] == "8.00"
    assert ours["GB/s"] == "4.00"
    assert theirs[faster] is None
    assert theirs["peak MB"] is None
    assert ceiling[""] == "*matmul*"
    assert ceiling["GFLOP/s"] == "32.0"
    assert ceiling[faster] is None


def test_a_floor_is_compared_the_other_way():
    table = contest_table("Title", "rows/s", FIELD, TIMINGS, PEAKS, slower=True)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["times as long as theirs (quartiles)"] == "0.333 (0.292-0.417)"


def test_rivals_count_in_their_own_group_alone():
    field = [
        Contestant("ours", lambda: None, group="a"),
        Contestant("theirs", lambda: None, "rival", group="b"),
    ]
    timings = {c.key: [1.0] for c in field}
    table = contest_table("Title", "rows/s", field, timings, {})
    assert table.rows[0][3] is None
    assert raw_timings(field, timings, {})[0]["ratios"] == {}


def test_plain_data_holds_rates_ratios_and_memory():
    ours, theirs, ceiling = raw_timings(FIELD, TIMINGS, PEAKS)
    assert ours["seconds"] == TIMINGS["", "ours"]
    assert ours["units_per_second"] == 200
    assert ours["flops_per_second"] == 8e9
    assert ours["bytes_per_second"] == 4e9
    assert ours["ratios"]["theirs"] == {"median": 3.0, "low": 2.5, "high": 3.5}
    assert ours["peak_bytes"] == 3_000_000
    assert theirs["ratios"] == {}
    assert theirs["bytes_per_second"] is None
    assert (ceiling["role"], ceiling["flops_per_second"]) == ("ceiling", 32e9)


def test_the_method_names_rounds_and_warm_up():
    assert "of 7 rounds, after 2 of warm-up" in method(7, warmup=2)

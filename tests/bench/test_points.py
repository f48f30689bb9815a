"""Points of fit and predict: states, limits, power laws and tables from made-up times."""

import math

import pytest
import torch

from tabicl_linear import build_task
from tabicl_linear.bench.inference_tables import (
    fit_table,
    panels,
    plain,
    power_law,
    predict_table,
    slopes,
    states,
)
from tabicl_linear.bench.points import (
    Limits,
    Meter,
    Point,
    Subject,
    enlarged,
    state_growth,
    tables,
)
from tabicl_linear.kernels.state import num_bytes

CPU = torch.device("cpu")
SMALL = [
    *(f"model.architecture.{name}=16" for name in ("dim", "hidden_dim", "decoder_dim")),
    *("model.architecture.depth=2", "model.architecture.num_heads=2"),
]


class Silent:
    def advance(self, done, total):
        assert 0 <= done <= total


def model(name, configs, overrides=SMALL):
    return build_task(configs / f"{name}.yaml", overrides=overrides).model.eval()


@pytest.fixture(scope="module")
def configs(request):
    return request.config.rootpath / "configs"


@pytest.fixture(scope="module")
def subjects(configs):
    return [
        Subject("deltanet", model("deltanet", configs), 2**62),
        Subject("softmax", model("softmax", configs), 96),
    ]


def test_states_of_the_paper_are_exact(configs):
    """12 x 4 x 80 x 80 float32, and 15 x 2 x 320 numbers for every token."""
    delta = model("deltanet", configs, [])
    assert state_growth(delta, CPU, None) == (1_228_800, 0)
    softmax = model("softmax", configs, [])
    assert state_growth(softmax, CPU, None) == (0, 38_400)
    table = states([Subject("delta", delta, 1), Subject("softmax", softmax, 1)], CPU)
    assert [row[-1] for row in table.rows] == [
        "1,228,800",
        "1,228,800",
        "4,915,200,000",
        "2,457,600,000",
    ]


def test_a_cache_that_is_made_up_has_the_size_of_the_real_one(subjects):
    softmax = subjects[1].model
    x, y = tables(48, softmax, CPU)
    with torch.no_grad():
        real = softmax.fit(x, y)
        made_up = enlarged(softmax.fit(x[:, :16], y[:, :16]), 48)
        assert num_bytes(made_up.layers) == num_bytes(real.layers)
        assert softmax.predict(made_up, x).shape == softmax.predict(real, x).shape
    delta = subjects[0].model
    with torch.no_grad():
        state = delta.fit(x, y)
    assert num_bytes(enlarged(state, 4800).layers) == num_bytes(state.layers)


def test_points_are_measured_within_limits(subjects):
    meter = Meter(CPU, None, Limits(repeats=2, budget=60.0))
    points = meter.measure(subjects, [32, 64, 128], Silent())
    assert [(p.name, p.rows) for p in points] == [
        (s.name, n) for n in (32, 64, 128) for s in subjects
    ]
    *others, last = points
    assert all(len(p.fit) == len(p.predict) == 2 for p in others)
    assert all(p.left_out is None and not p.made_up for p in others)
    assert last.left_out == "more than 96 rows"
    assert (last.fit, last.predict, last.made_up) == ([], [], True)
    assert last.state_bytes == 2 * points[3].state_bytes > 0
    assert len({p.state_bytes for p in points if p.name == "deltanet"}) == 1


def test_slow_points_are_left_out_and_read_from_made_up_caches(subjects):
    limits = Limits(repeats=3, budget=1e-6, reads_made_up_caches=True)
    delta, softmax = subjects
    points = Meter(CPU, None, limits).measure(
        [delta, softmax._replace(most_rows=2**62)], [32, 64], Silent()
    )
    first, second = points[:2], points[2:]
    assert all(len(p.fit) == 1 for p in first)  # the first call has to count
    assert all(p.left_out == "time" and p.fit == [] for p in second)
    assert second[0].predict == []
    assert len(second[1].predict) == 1


def test_a_power_law_is_found_with_its_interval():
    rows = [1000.0 * 2**i for i in range(8)]
    exact = power_law(rows, [3e-4 * n**1.25 for n in rows])
    assert exact.slope == pytest.approx(1.25)
    assert exact.high - exact.low < 1e-6
    noisy = power_law(rows, [n * (1.2 if i % 2 else 1 / 1.2) for i, n in enumerate(rows)])
    assert noisy.low < 1 < noisy.high
    assert math.isnan(power_law(rows[:2], [1.0, 2.0]).low)


def made_up_points():
    points = []
    for n in (1000, 2000, 4000):
        points.append(Point("deltanet", n, [n / 1e4], [0.1], 10**6, 10**5, 1_228_800))
        slow = n == 4000
        points.append(
            Point(
                "softmax",
                n,
                [] if slow else [n * n / 1e7],
                [n / 1e4],
                None,
                None,
                38_400 * n,
                slow,
                "time" if slow else None,
            )
        )
    return points


def test_the_table_of_fits():
    table = fit_table(made_up_points(), 2e7, "float32", "A note.")
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert table.notes[-1] == "A note."
    delta, softmax = table.rows[:2]
    assert delta[:2] == ["deltanet", "1,000"]
    # 2e7 operations a row, 1000 rows in 0.1 s; softmax takes as long.
    assert delta[3:] == ["10,000", "200", "1.00", "1.00", "1,228,800"]
    assert softmax[4:] == [None, None, None, "38,400,000"]
    assert table.rows[5][2] == "left out: time"
    assert table.rows[5][-1] == "153,600,000, computed"


def test_the_table_of_predictions():
    table = predict_table(made_up_points(), 3e6, "float32", "A note.")
    assert {len(row) for row in table.rows} == {len(table.columns)}
    rows = {(row[0], row[1]): row for row in table.rows}
    assert rows["deltanet", "1,000"][2] == "1.00 (1.00-1.00)"
    # 3e6 operations a row, 1000 rows a second; the state of 38.4 MB read in 0.1 s.
    assert rows["deltanet", "1,000"][3:5] == ["1,000", "3.00"]
    assert rows["softmax", "1,000"][5] == "0.384"
    assert rows["deltanet", "2,000"][6:8] == ["2.00", "6.00"]  # 0.2 s, and 0.4 + 0.2 s
    assert rows["softmax, refit", "2,000"][2] == "6.00"
    assert ("softmax, random cache", "4,000") in rows
    assert ("softmax, refit", "4,000") not in rows


def test_plain_points_hold_rates_and_ratios():
    data = {(p["name"], p["rows"]): p for p in plain(made_up_points())}
    delta = data["deltanet", 2000]
    assert delta["fit_rows_per_second"] == pytest.approx(10_000)
    assert delta["predict_rows_per_second"] == pytest.approx(1000)
    assert delta["times_faster_than_softmax"] == pytest.approx(
        {"fit": 2.0, "predict": 2.0, "refit": 6.0}
    )
    late = data["deltanet", 4000]["times_faster_than_softmax"]
    assert math.isnan(late["fit"])
    assert late["predict"] == pytest.approx(4.0)


def test_slopes_leave_out_what_was_not_measured():
    table = slopes(made_up_points(), "fit")
    assert [row[0] for row in table.rows] == ["deltanet", "deltanet", "softmax"]
    assert table.rows[0][2].startswith("1.00")
    assert table.rows[2][2] == "2.00"


def test_panels_say_what_is_not_fitted():
    fits, predictions, sizes = panels(made_up_points())
    assert [line.x for line in fits.lines] == [[1000, 2000, 4000], [1000, 2000]]
    assert [line.note for line in fits.lines] == ["slope 1.00", ""]
    assert [(len(line.x), line.num_computed) for line in predictions.lines] == [
        (3, 0),
        (3, 1),
        (2, 0),
    ]
    assert predictions.lines[-1].y == [pytest.approx(0.2), pytest.approx(0.6)]
    assert [line.note for line in sizes.lines] == ["1.23 MB", "154 MB"]
    assert [panel.unit for panel in (fits, predictions, sizes)] == ["s", "s", "B"]

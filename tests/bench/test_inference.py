"""Points of fit and predict: states, limits, power laws and tables from made-up times."""

import math
import re

import pandas as pd
import pytest
import torch

from tabicl_linear import build_task
from tabicl_linear.bench.cases import Options, Spread
from tabicl_linear.bench.inference import Meter, build_models, state_growth
from tabicl_linear.bench.inference_tables import NOTES, completed, panels, power_law, slopes, table

CPU = torch.device("cpu")
SMALL = [
    *(f"model.architecture.{name}=16" for name in ("dim", "hidden_dim", "decoder_dim")),
    *("model.architecture.depth=2", "model.architecture.num_heads=2"),
]

FORMS = [("leave_one_out", 168_680), ("earlier_rows", 4_774_704)]
"""Bytes of the state of ridge inputs at 20 columns and 10 classes, as their own tests count it."""


def model(name, configs, overrides=SMALL):
    return build_task(configs / f"{name}.yaml", overrides=overrides).model.eval()


@pytest.fixture(scope="module")
def configs(request):
    return request.config.rootpath / "configs"


@pytest.fixture(scope="module")
def models(configs):
    return {name: model(name, configs) for name in ("deltanet", "softmax")}


def test_states_of_the_paper_are_exact(configs):
    """12 x 4 x 80 x 80 float32, and 15 x 2 x 320 numbers for every token."""
    delta, softmax = (model(name, configs, []) for name in ("deltanet", "softmax"))
    assert state_growth(delta, None) == (1_228_800, 0)
    assert state_growth(softmax, None) == (0, 38_400)
    assert state_growth(softmax, torch.bfloat16) == (0, 19_200)


@pytest.mark.parametrize(("form", "expected"), FORMS)
def test_states_hold_those_of_ridge_inputs(configs, form, expected):
    ridge = [f"model.architecture.ridge_inputs.form={form}"]
    for name in ("deltanet", "softmax"):
        plain, growth = state_growth(model(name, configs), None)
        assert state_growth(model(name, configs, SMALL + ridge), None) == (plain + expected, growth)


@pytest.mark.parametrize(("columns", "classes"), [(5, 3), (40, 12)])
def test_both_models_take_the_tables_of_ours(configs, columns, classes):
    sizes = [f"data.shapes.max_features={columns}", f"data.shapes.max_classes={classes}"]
    models = build_models([configs / "deltanet.yaml"], SMALL + sizes, CPU)
    for result in models.values():
        assert result.architecture.num_features == columns
        assert result.architecture.num_classes == classes


def test_points_are_measured_at_all_sizes(models):
    points = Meter(models, Options(CPU, rounds=2, budget=60.0), None).measure([32, 64])
    assert list(zip(points["name"], points["rows"], strict=True)) == [
        (name, rows) for rows in (32, 64) for name in models
    ]
    assert points["left_out"].isna().all()
    assert (points[["fit", "predict"]] > 0).all(axis=None)
    sizes = points.pivot(index="rows", columns="name", values="state_bytes")
    assert sizes["deltanet"].nunique() == 1
    assert sizes["softmax"][64] == 2 * sizes["softmax"][32] > 0


def test_slow_points_are_left_out(models):
    points = Meter(models, Options(CPU, rounds=3, budget=1e-6), None).measure([32, 64, 128])
    assert points["left_out"].fillna("").tolist() == ["", ""] + ["time"] * 4
    assert points["fit"].notna().tolist() == [True] * 2 + [False] * 4  # the first call has to count
    assert points["predict"].notna().tolist() == [True] * 2 + [False] * 4


def test_a_state_without_room_is_left_out(models, monkeypatch):
    monkeypatch.setattr("tabicl_linear.bench.inference.free_bytes", lambda device: 10_000)
    points = Meter(models, Options(CPU, rounds=1), None).measure([32, 64])
    assert points["left_out"].fillna("").tolist() == ["", "memory", "", "memory"]


def test_a_power_law_is_found_with_its_interval():
    rows = [1000.0 * 2**i for i in range(8)]
    slope, margin = power_law(pd.Series([3e-4 * n**1.25 for n in rows], index=rows))
    assert slope == pytest.approx(1.25)
    assert margin < 1e-6
    noisy = [n * (1.2 if i % 2 else 1 / 1.2) for i, n in enumerate(rows)]
    slope, margin = power_law(pd.Series(noisy, index=rows))
    assert slope - margin < 1 < slope + margin
    assert math.isnan(power_law(pd.Series([1.0, 2.0], index=rows[:2]))[1])
    assert math.isnan(power_law(pd.Series([1.0], index=rows[:1]))[0])


def made_up_points():
    points = []
    for n in (1000, 2000, 4000):
        for name, fit, predict, size in (
            ("deltanet", n / 1e4, 0.1, 1_228_800),
            ("softmax", n * n / 1e7, n / 1e4, 38_400 * n),
        ):
            point = {"name": name, "rows": n, "state_bytes": size, "left_out": None}
            if (name, n) == ("softmax", 4000):
                point["left_out"] = "time"
            else:
                for what, seconds in (("fit", fit), ("predict", predict)):
                    point |= {what: seconds, f"{what}_peak": 10**6}
                    point[f"{what}_spread"] = Spread(seconds, seconds, seconds)
            points.append(point)
    return completed(pd.DataFrame(points))


def test_the_table_of_fits():
    fits = table("fit", made_up_points(), "float32", "A note.")
    assert fits.notes.endswith("A note.")
    cells = fits.cells.set_index(["", "rows of context"])
    delta, softmax = cells.loc[("deltanet", "1,000")], cells.loc[("softmax", "1,000")]
    assert delta.tolist() == ["0.100 (0.100-0.100)", "10,000", "1.00", "1.00", "1,228,800"]
    assert pd.isna(softmax["times faster than softmax"])
    late = cells.loc[("softmax", "4,000")]
    assert late["s (quartiles)"] == "left out: time"
    assert late["state bytes"] == "153,600,000, computed"


def test_the_table_of_predictions():
    cells = table("predict", made_up_points(), "float32").cells.set_index(["", "rows of context"])
    delta = cells.loc[("deltanet", "2,000")]
    assert delta["ms a predicted row (quartiles)"] == "1.00 (1.00-1.00)"
    assert delta["rows/s"] == "1,000"
    # 0.2 s, and 0.4 + 0.2 s
    assert delta.filter(like="faster").tolist() == ["2.00", "6.00"]
    (explained,) = re.findall(r"\*(.*?)\*", NOTES["predict"])
    assert any(column.endswith(explained.lower()) for column in delta.index)


def test_slopes_leave_out_what_was_not_measured():
    cells = slopes("fit", made_up_points()).cells
    assert cells[""].tolist() == ["deltanet", "deltanet", "softmax", "softmax"][: len(cells)]
    assert cells.iloc[0, 2].startswith("1.00")
    assert cells.iloc[2, 2] == "2.00"


def test_panels_say_what_is_computed():
    fits, predictions, sizes = panels(made_up_points()).values()
    assert fits.groupby("name")["rows"].apply(list).to_dict() == {
        "deltanet": [1000, 2000, 4000],
        "softmax, KV cache": [1000, 2000],
    }
    again = predictions[predictions["name"].str.contains("no cache")]
    assert again["value"].tolist() == [pytest.approx(0.2), pytest.approx(0.6)]
    assert sizes["is_computed"].tolist() == [False] * 5 + [True]

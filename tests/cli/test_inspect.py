"""`tabicl-linear inspect`: one page, whole tables, ten lines; and what it refuses."""

import re
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import tiny_model
import torch
from contract.variants import make

from tabicl_linear import load_model
from tabicl_linear.__main__ import main
from tabicl_linear.analysis import drift, states_at
from tabicl_linear.analysis.inspection import ANALYSES, Plan, inspect_model, plan_lengths
from tabicl_linear.analysis.page import page
from tabicl_linear.analysis.probe_tasks import Probe
from tabicl_linear.analysis.summary import saturated_layers, summarise
from tabicl_linear.cli.inspect import table_probe
from tabicl_linear.cli.inspect_options import NAMES
from tabicl_linear.errors import DataError

SHORT = ["--lengths", "8", "16", "32", "--tasks", "2"]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Two files of untrained models."""
    folder = tmp_path_factory.mktemp("models")
    return [
        str(tiny_model.save(tiny_model.untrained(seed), folder / f"{name}.ckpt"))
        for seed, name in enumerate(("first", "second"))
    ]


@pytest.fixture(scope="module")
def both(checkpoints, tmp_path_factory):
    """The folder of an inspection of both."""
    output = tmp_path_factory.mktemp("out") / "new" / "both"
    assert main(["inspect", *checkpoints, "--output", str(output), *SHORT]) == 0
    return output


def noise_plan(length):
    """Two tasks of noise, looked at after one length."""
    x, y = torch.randn(2, length + 10, 4), torch.randint(0, 3, (2, length + 10))
    numbers = torch.zeros(2, 4, dtype=torch.bool)
    return Plan(Probe(x, y, numbers, 10, None), [length], length)


class Links(HTMLParser):
    """Collects whatever a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.sources, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.sources += [value for key, value in attributes if key in ("src", "href")]


def test_the_page_stands_alone(both):
    text = (both / "inspect.html").read_text()
    links = Links()
    links.feed(text)
    assert len(links.sources) >= len(ANALYSES)
    for source in links.sources:
        kind, data = source.split(",", 1)
        assert kind == "data:image/png;base64"
        assert b64decode(data).startswith(b"\x89PNG")
    assert "http" not in re.sub(r'src="[^"]*"', "", text)
    assert all(name in text for name in ("first", "second"))


def test_tables_of_both_are_parquet(both, checkpoints):
    names = {path.stem for path in both.glob("*.parquet")}
    assert names == set(ANALYSES)
    for name in names:
        assert set(pd.read_parquet(both / f"{name}.parquet")["checkpoint"]) == {"first", "second"}
    table = pd.read_parquet(both / "drift.parquet")
    assert sorted(set(table["length"])) == [8, 16, 32]


def test_the_summary_is_ten_lines_on_the_terminal_and_in_the_folder(checkpoints, capsys, tmp_path):
    output = tmp_path / "one"
    assert main(["inspect", checkpoints[0], "--output", str(output), *SHORT]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 10
    assert printed == (output / "summary.txt").read_text()
    words = ["DeltaNet, FinalState, 2 layers", "96 to 1,000 rows", "2 tasks", "drift begins"]
    assert all(word in printed for word in words)


def test_one_task_is_in_the_singular(checkpoints, capsys, tmp_path):
    short = ["--lengths", "8", "16", "--tasks", "1", "--only", "scores"]
    assert main(["inspect", checkpoints[0], "--output", str(tmp_path / "one"), *short]) == 0
    assert re.search(r"\b1 task of \d+ column", capsys.readouterr().out)


def test_a_table_of_a_person(checkpoints, tmp_path):
    rng, y = np.random.default_rng(0), np.arange(60) % 3
    table = pd.DataFrame({"c": y + rng.normal(size=60), "d": rng.normal(size=60)})
    table["kind"] = np.where(np.arange(60) % 2, "a", "b")
    table["y"] = np.array(["red", "green", "blue"])[y]
    table.to_csv(tmp_path / "train.csv", index=False)
    options = ["--table", str(tmp_path / "train.csv"), "--target", "y", "--tasks", "3"]
    assert main(["inspect", checkpoints[0], *options, "--output", str(tmp_path / "out")]) == 0
    scores = pd.read_parquet(tmp_path / "out" / "scores.parquet")
    assert set(scores["task"]) == {1, 2, 3}
    assert scores["length"].max() == 48  # all but a fifth, the queries


def test_a_probe_of_a_table_has_its_rows_in_other_orders():
    table = pd.DataFrame({"a": np.arange(50.0), "y": np.arange(50) % 2})
    probe = table_probe(table[["a"]], table["y"], [tiny_model.untrained()], num_tasks=3)
    assert (probe.num_context, probe.num_queries) == (40, 10)
    assert not torch.equal(probe.x[0], probe.x[1])
    for x, y in zip(probe.x[..., 0], probe.y, strict=True):
        order = x.argsort()
        assert torch.equal(y[order], torch.arange(50) % 2)


def test_drift_of_the_command_is_that_of_the_functions(checkpoints, both):
    """Through the public functions, on the tasks of the command."""
    from tabicl_linear.analysis.probe_tasks import draw_probe
    from tabicl_linear.priors import TabPFNv1Prior

    model = load_model(checkpoints[0])
    probe = draw_probe(
        TabPFNv1Prior(), [8, 16, 32], trained=32, num_tasks=2, feature_range=(1, 20), max_classes=10
    )
    states = states_at(model, probe.x, probe.y, [8, 16, 32], categorical=probe.categorical)
    expected = drift(states, reference=32)
    kept = pd.read_parquet(both / "drift.parquet")
    kept = kept[kept["checkpoint"] == "first"].drop(columns="checkpoint").reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("models", "most", "expected"),
    [
        ([1000], None, ([125, 250, 500, 1000, 2000, 4000], 1000)),
        ([None], None, ([125, 250, 500, 1000, 2000, 4000], 1000)),
        ([255, 100], None, ([32, 64, 128, 255, 510, 1020], 255)),
        ([1000], 300, ([125, 250, 300], 300)),
        ([1000], 1500, ([125, 250, 500, 1000], 1000)),
        ([1000], 50, ([50], 50)),
    ],
)
def test_lengths_follow_the_trained_range(models, most, expected):
    result = [tiny_model.untrained() for _ in models]
    for model, rows in zip(result, models, strict=True):
        model.provenance = {} if rows is None else {"trained_rows": [16, rows]}
    assert plan_lengths(result, most) == expected


def test_a_full_layer_and_a_shut_one_are_saturated():
    model = make("DeltaNet", "final_state").float()
    plan = noise_plan(60)
    with torch.no_grad():
        for block in model.backbone.layers():
            block.mixer.write_rate.projection.weight.zero_()
        one = inspect_model("it", model, plan, only=["write_rates"])
        assert saturated_layers(one, plan) == {}
        rates = one.tables["write_rates"]
        rates.loc[rates["layer"] == 2, "mean"] = 0.001
    assert saturated_layers(one, plan) == {2: "writes 0.001"}
    lines = summarise([one], plan)
    assert len(lines) == 10
    assert sum("not looked at" in line for line in lines) == 5


def test_small_step_sizes_of_mamba_are_no_shut_layer():
    model, plan = make("Mamba2", "final_state").float(), noise_plan(60)
    with torch.no_grad():
        one = inspect_model("it", model, plan, only=["write_rates"])
    rates = one.tables["write_rates"]
    rates["mean"] = 0.001
    assert saturated_layers(one, plan) == {}


def test_names_of_checkpoints_are_text_on_the_page():
    plan = noise_plan(20)
    one = inspect_model("<b>&", make("Softmax", "causal").float(), plan)
    text = page([one], ["<i>"], "a & b")
    assert "<b>" not in text
    assert "<i>" not in text
    assert "softmax attention keeps" in text  # why there is no drift


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["CKPT", "CKPT", "CKPT"], "two to compare"),
        (["/nowhere.ckpt"], "/nowhere.ckpt"),
        (["CKPT", "--lengths", "32", "16"], "increasing"),
        (["CKPT", "--lengths", "2", "16"], "at least 5"),
        (["CKPT", "--tasks", "0"], "--tasks: 0"),
        (["CKPT", "--table", "/nowhere.csv"], "--target"),
        (["CKPT", "--table", "/nowhere.csv", "--target", "y"], "no such file"),
        (["CKPT", "--table", "TABLE", "--target", "z"], "'z'"),
        (["CKPT", "--table", "TABLE", "--target", "x"], "50 classes"),
        (["CKPT", "--table", "TABLE", "--target", "y", "--lengths", "10", "160"], "160 rows"),
        (["CKPT", "--only", "nothing"], "nothing"),
        (["CKPT", "--output", "TABLE/out"], "t.csv is not a folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(options, words, checkpoints, tmp_path, capsys):
    table = tmp_path / "t.csv"
    pd.DataFrame({"x": [f"v{i % 50}" for i in range(150)], "y": np.arange(150) % 2}).to_csv(
        table, index=False
    )
    stand_ins = {"CKPT": checkpoints[0], "TABLE": str(table), "TABLE/out": f"{table}/out"}
    options = [stand_ins.get(option, option) for option in options]
    assert main(["inspect", "--output", str(tmp_path / "out"), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_output_of_another_run_is_left_alone(both, checkpoints, capsys):
    before = {path: path.read_bytes() for path in both.iterdir()}
    assert main(["inspect", checkpoints[0], "--output", str(both)]) == 2
    assert "new name" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in both.iterdir()}


def test_the_current_folder_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    """It cannot be replaced, not even where it is empty; without that file there is no work."""
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", "/nowhere.ckpt", "--output", "."]) == 2
    assert "--output . cannot be replaced, as the current folder" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file/out", "file/deeper/out"])
def test_an_output_that_cannot_be_written_is_named_as_it_was_given(
    place, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["inspect", "/nowhere.ckpt", "--output", place]) == 2
    error = capsys.readouterr().err
    assert f"--output {place}: {tmp_path / 'file'} is not a folder; name another" in error


def test_what_a_model_does_not_have_is_refused_by_name():
    plan = noise_plan(20)
    with pytest.raises(DataError, match="softmax attention"):
        inspect_model("it", make("Softmax", "causal").float(), plan, only=["drift"])


def test_an_error_while_writing_leaves_nothing(checkpoints, tmp_path, monkeypatch, capsys):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tabicl_linear.cli.inspect.page", full)
    options = ["--output", str(tmp_path / "out"), *SHORT, "--only", "scores"]
    assert main(["inspect", checkpoints[0], *options]) == 2
    assert "No space left" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_options_name_every_analysis():
    assert list(ANALYSES) == list(NAMES)

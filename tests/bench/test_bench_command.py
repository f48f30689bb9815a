"""`tabicl-linear bench`: every verb with --quick, and refusals in one line."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from few_trees import few_trees, few_trees_of_baselines
from forked import forked

from tabicl_linear.__main__ import main, run

__all__ = ["few_trees", "few_trees_of_baselines", "forked"]
ROOT = Path(__file__).parents[2]


class Case(NamedTuple):
    """A call of the command and what it leaves.

    Attributes:
        arguments: Before --quick and --output.
        stem: Of its files.
        titles: How its tables begin.
        has_figure: Whether there is STEM.png beside them.
    """

    arguments: tuple[str, ...]
    stem: str
    titles: tuple[str, ...]
    has_figure: bool = False


PRIOR = Case(
    ("prior", "--rounds", "2"),
    "prior",
    ("TabPFN v1 prior, 100 rows, calls",),
)
START = Case(("start", "--cpu-time", "--rounds", "1"), "start", ("60 rows x 4 columns",))
KERNELS = Case(
    ("kernels", "--only", "delta rule", "gated delta rule", "GLA"),
    "kernels",
    ("delta rule: 2 x 96 tokens", "gated delta rule: ", "GLA: "),
)
TRAIN = Case(
    ("train", "--cpu-time", "--rounds", "1"),
    "train-deltanet",
    ("Training step of deltanet.yaml, 2 x 64 rows", "Looking at the model"),
)
FIT = Case(
    ("fit", "--plot"),
    "fit-deltanet",
    ("Fitting a context, float32", "Exponent of the time to fit"),
    has_figure=True,
)
PREDICT = Case(
    ("predict", "--precision", "bf16"),
    "predict-deltanet-bfloat16",
    ("Predicting from a fitted context, bfloat16", "Exponent of the time to predict"),
)


@pytest.fixture
def measure(tmp_path, monkeypatch, capsys):
    """Runs a case in the folder of the project and returns its JSON."""

    def measured(case):
        monkeypatch.chdir(ROOT)
        assert main(["bench", *case.arguments, "--quick", "--output", str(tmp_path)]) == 0
        return checked(case, tmp_path, capsys.readouterr())

    return measured


def checked(case, folder, said):
    """The JSON of a quick run, after checking what holds for all verbs."""
    suffixes = (".json", ".md", ".png") if case.has_figure else (".json", ".md")
    assert {p.name for p in folder.iterdir()} == {case.stem + suffix for suffix in suffixes}
    text = (folder / f"{case.stem}.md").read_text()
    assert said.out == text
    data = json.loads((folder / f"{case.stem}.json").read_text())
    assert data["command"].startswith(f"tabicl-linear bench {case.arguments[0]} ")
    assert data["machine"]["cpu"] in text
    assert data["machine"]["gpu"] is None
    assert data["machine"]["threads"] >= 1
    assert len(data["machine"]["load_average"]) == 3
    titles = [table["title"] for table in data["tables"]]
    for title in case.titles:
        assert any(t.startswith(title) for t in titles), titles
    for table in data["tables"]:
        assert f"### {table['title']}\n" in text
        assert len({tuple(row) for row in table["cells"]}) == 1
    if case.has_figure:
        figure = folder / f"{case.stem}.png"
        assert figure.read_bytes().startswith(b"\x89PNG")
        assert data["settings"]["figure"] == figure.name
    assert "left" in said.err  # the time left
    assert "USDT" not in said.err
    return data


def check_cases(entries, baselines, rounds=3):
    """Throughput, ratios to all baselines of the group, peak memory, and bounds of the run."""
    roles = {role: [e for e in entries if e["role"] == role] for role in ("ours", "baseline")}
    for entry in roles["ours"]:
        assert entry["median_seconds"] > 0
        assert entry["units_per_second"] == pytest.approx(entry["units"] / entry["median_seconds"])
        assert set(entry["ratios"]) == baselines
        for ratio in entry["ratios"].values():
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    for entry in (*roles["ours"], *roles["baseline"]):
        # Known on Linux, where a call may also need nothing beyond what the process has.
        assert (entry["peak_bytes"] is not None) == sys.platform.startswith("linux")
        assert len(entry["seconds"]) == rounds
    assert {e["name"] for e in roles["baseline"]} == baselines
    check_bounds(entries)


def check_bounds(entries, rates=("moved_per_second",)):
    bounds = [e for e in entries if e["role"] == "bound"]
    for rate in rates:
        assert any(e[rate] for e in bounds)


def check_targets(data, count):
    """Every bound is there with what was measured; small sizes give no verdict."""
    assert len(data["targets"]) == count
    for target in data["targets"]:
        assert target["is_met"] is None
        assert target["measured"] is None or target["measured"] > 0


@pytest.mark.slow
def test_prior(measure):
    data = measure(PRIOR)
    shared = "imitation, one network for a batch"
    baselines = {"imitation, a network for each dataset", shared}
    entries = data["raw"]["cases"]
    bounds = [e for e in entries if e["role"] == "bound"]
    check_bounds(entries, ("flops_per_second",))
    check_targets(data, 2)
    for columns, target in zip(("20 columns", "5 columns"), data["targets"], strict=True):
        group = [e for e in entries if e["group"] == columns]
        check_cases([*group, *bounds], baselines, rounds=2)
        seconds = {e["name"]: sum(e["seconds"]) for e in group}
        assert {e["name"] for e in group if e["role"] == "ours"} == {
            "sharing=dataset",
            "sharing=batch",
            "TreePrior",
            "Mixture",
            "WithTableEffects",
            "prior/mixture",
        }
        assert target["measured"] == pytest.approx(seconds[shared] / seconds["sharing=dataset"])
        assert columns in target["what"]


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees", "few_trees_of_baselines")
def test_start(measure):
    pytest.importorskip("catboost")
    data = measure(START)
    trees = {"random_forest", "catboost", "hist_gradient_boosting"}
    groups = {e["group"] for e in data["raw"]["cases"]}
    assert groups == {"60 rows, fit and predict 200", "60 rows, predict one"}
    for entry in data["raw"]["cases"]:
        if entry["role"] == "ours":
            assert set(entry["ratios"]) == trees
    check_targets(data, 2)


@pytest.mark.slow
def test_kernels(measure):
    data = measure(KERNELS)
    entries = data["raw"]["cases"]
    bounds = [e for e in entries if e["role"] == "bound"]
    for group in {e["group"] for e in entries if e["group"]}:
        baseline = "naive recurrence" if group.startswith("GLA") else "naive chunk form"
        check_cases([*(e for e in entries if e["group"] == group), *bounds], {baseline})
    check_bounds(entries, ("flops_per_second",))
    check_targets(data, 6)
    assert [t["wanted"] for t in data["targets"]] == [3.0, 8.0] * 3


def test_inputs_of_rules_have_the_type_asked_for(tmp_path, capsys):
    small = ("--only", "linear", "--shape", "1", "8", "1", "4", "--rounds", "1", "--quick")
    command = ["bench", "kernels", *small, "--dtype", "bfloat16", "--output", str(tmp_path)]
    assert main(command) == 0
    assert "### linear: 1 x 8 tokens x 1 heads x 4, bfloat16\n" in capsys.readouterr().out
    data = json.loads((tmp_path / "kernels-bfloat16.json").read_text())
    forward = next(e for e in data["raw"]["cases"] if e["group"] == "linear, forward")
    moved = forward["moved_per_second"] * forward["median_seconds"]
    assert moved == pytest.approx(4 * 8 * 4 * 2)  # queries, keys, values and outputs, two bytes


def test_compiled_steps_are_timed_where_asked(tmp_path, monkeypatch):
    class Prepared(Exception):
        """What is to be timed, as compiling takes minutes."""

    def measure(cases, *_):
        raise Prepared(*cases)

    monkeypatch.setattr("tabicl_linear.bench.train.measure", measure)
    monkeypatch.chdir(ROOT)
    command = ["bench", "train", "--quick", "--precision", "float32", "--output", str(tmp_path)]
    with pytest.raises(Prepared) as prepared:
        main([*command, "--compile"])
    (compiled,) = (case for case in prepared.value.args if case.name.endswith("torch.compile"))
    assert compiled.prepare.keywords["compile_dense"]


@pytest.mark.slow
def test_train(measure):
    data = measure(TRAIN)
    entries = data["raw"]["cases"]
    for precision in ("float32", "bf16"):
        group = [e for e in entries if e["group"] in (precision, "")]
        check_cases(group, {"dense products alone"}, rounds=1)
    check_targets(data, 3)


@pytest.mark.slow
def test_fit(measure):
    data = measure(FIT)
    check_points(data)


@pytest.mark.slow
def test_predict(measure):
    data = measure(PREDICT)
    check_points(data)
    softmax = data["raw"]["points"][1]
    # Keys and values of every row and layer, 32 numbers each, in 16 bits.
    assert softmax["state_bytes"] == softmax["rows"] * 2 * 2 * 32 * 2


def check_points(data):
    points = data["raw"]["points"]
    assert [(p["name"], p["rows"]) for p in points] == [
        (name, rows) for rows in (64, 128, 256) for name in ("deltanet", "softmax")
    ]
    for p in points:
        assert p["fit_rows_per_second"] > 0
        assert p["predict_rows_per_second"] > 0
        assert (p["fit_peak"] is not None) == sys.platform.startswith("linux")
        for what in ("fit", "predict", "refit"):
            assert p[f"{what}_ratio"] > 0
    assert len({p["state_bytes"] for p in points if p["name"] == "deltanet"}) == 1


def command_line(arguments):
    """The command as a process of its own, which it ends."""
    sys.argv[1:] = arguments
    run()


def test_a_refusal_of_the_process_is_one_line_and_leaves_nothing(forked, tmp_path):
    folder = tmp_path / "new"
    process = forked(command_line, "bench", "prior", "--device", "tpu", "--output", folder)
    assert process.wait() == 2
    (line,) = process.said()
    assert line.startswith("tabicl-linear bench: device='tpu' is ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kernels", "--rounds", "0"), "--rounds: 0"),
        (("kernels", "--shape", "1", "2", "3"), "--shape: expected 4"),
        (("kernels", "--only", "nonsense"), "choose from delta rule"),
        (("kernels", "--budget", "-1"), "--budget: -1"),
        (("kernels", "--budget", "soon"), "--budget: soon"),
        (("prior", "--device", "tpu"), "device='tpu'"),
        (("prior", "--nonsense"), "--nonsense"),
        (("train", "--precision", "float8"), "choose from float32"),
        (("train", "--precision", "fp16"), "--precision fp16"),
        (("train", "--config", "nowhere.yaml"), "nowhere.yaml"),
        (("train", "--config", "{delta}", "--override", "model.nonsense=1"), "model.nonsense"),
        (("fit", "--config", "{softmax}"), "name a model"),
        (("fit", "--config", "nowhere.yaml"), "nowhere.yaml"),
        (("predict", "--rows", "many"), "--rows: many"),
        (("predict", "--plot"), "--plot"),
        (("nonsense",), "invalid choice"),
        ((), "required"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value),
)
def test_bad_options_are_refused_in_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configs = ROOT / "configs"
    paths = {"softmax": configs / "softmax.yaml", "delta": configs / "deltanet.yaml"}
    options = [a.format(**paths) for a in arguments]
    assert main(["bench", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tabicl-linear bench: ")
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_a_file_is_refused_before_measuring(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["bench", "prior", "--output", str(tmp_path / "file")]) == 2
    assert "--output" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == ""

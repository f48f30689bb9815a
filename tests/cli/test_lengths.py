"""`tabicl-linear lengths` from end to end: results, resume after a kill, shards, bad input."""

import json

import pandas as pd
import pytest
import torch
from tiny_model import RECIPE, save, untrained

from tabicl_linear import recipe
from tabicl_linear.__main__ import main

SMALL = ["--max-rows", "300", "--queries", "30", "--classes", "3", "--features", "4"]
LENGTHS = ["--lengths", "50", "100", "300"]
CAUSAL = {"class_path": "tabicl_linear.readouts.Causal", "init_args": {}}
SOFTMAX = {"class_path": "tabicl_linear.mixers.softmax.Softmax", "init_args": {}}
COLUMNS = ["dataset", "model", "num_rows", "roc_auc", "accuracy", "log_loss", "checksum"]


def write(path, **parts):
    """A checkpoint of the tiny architecture with other parts."""
    torch.manual_seed(0)
    model = recipe.build(RECIPE | parts)
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    hyper = RECIPE | parts
    torch.save({"state_dict": weights, "hyper_parameters": hyper, "provenance": {}}, path)
    return str(path)


@pytest.fixture
def fs(tmp_path):
    return str(save(untrained(), tmp_path / "fs.ckpt"))


@pytest.fixture
def causal(tmp_path):
    return write(tmp_path / "causal.ckpt", readout=CAUSAL)


@pytest.fixture
def softmax(tmp_path):
    return write(tmp_path / "softmax.ckpt", mixer=SOFTMAX)


def call(*options):
    lengths = [] if "--lengths" in options else LENGTHS
    return main(["lengths", *SMALL, *lengths, *map(str, options)])


def test_results_summary_and_figure(tmp_path, fs, causal, softmax, capsys):
    out = tmp_path / "out"
    options = ["--checkpoint", fs, causal, softmax, "--datasets", 2, "--output", out]
    options += ["--blocks", "--block-rows", 60, "--oracle", "fs", "causal", "--oracle-epochs", 2]
    assert call(*options) == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"run.json", "parts", "results.parquet", "summary.csv", "lengths.png"}
    assert (out / "lengths.png").read_bytes().startswith(b"\x89PNG")
    result = pd.read_parquet(out / "results.parquet")
    assert set(COLUMNS) <= set(result)
    models = [name for n in ("fs", "causal", "softmax") for name in (n, f"{n} in blocks of 60")]
    assert set(result["model"]) == {*models, "fs oracle", "causal oracle"}
    lengths = result.groupby(["dataset", "model"])["num_rows"].apply(list)
    for (_, model), rows in lengths.items():
        assert rows == ([300] if model.endswith("oracle") else [50, 100, 300])
    assert result["checksum"].nunique() == 2
    assert result["normalised_roc_auc"].max() == 1
    captured = capsys.readouterr()
    assert "| causal in blocks of 60 | " in captured.out
    assert "part 1: 2 of 2" in captured.err
    assert len(pd.read_csv(out / "summary.csv")) == 6 * 3 + 2


def test_scores_that_nothing_normalises_are_said_and_not_shown_empty(tmp_path, fs, capsys):
    options = ["--checkpoint", fs, "--datasets", 1, "--output", tmp_path / "out"]
    assert call(*options, "--lengths", 50) == 0
    captured = capsys.readouterr()
    assert "no normalised scores: on every dataset the reference set always" in captured.err
    assert captured.out.startswith("roc_auc, mean over 1 dataset")


def test_statistics_come_from_the_rows_asked_for(tmp_path, causal):
    losses = {}
    for rows in ("longest", "first", "each"):
        options = ["--checkpoint", causal, "--datasets", 1, "--output", tmp_path / rows]
        assert call(*options, "--statistics", rows) == 0
        losses[rows] = pd.read_parquet(tmp_path / rows / "results.parquet")["log_loss"].tolist()
    # At both ends one of the others takes those of the length itself, too.
    assert losses["first"][0] == pytest.approx(losses["each"][0], rel=1e-4)
    assert losses["longest"][-1] == pytest.approx(losses["each"][-1], rel=1e-4)
    assert losses["first"][-1] != pytest.approx(losses["each"][-1], rel=1e-4)
    assert losses["longest"][0] != pytest.approx(losses["each"][0], rel=1e-4)


def test_shards_and_later_calls_add_up_to_one_run(tmp_path, causal, capsys):
    parted, whole = tmp_path / "parted", tmp_path / "whole"
    options = ["--checkpoint", causal, "--output"]
    assert call(*options, parted, "--datasets", 3, "--shard", "2/2") == 0
    assert pd.read_parquet(parted / "results.parquet")["dataset"].unique().tolist() == [1]
    assert call(*options, parted, "--datasets", 3, "--shard", "1/2") == 0
    assert call(*options, parted, "--datasets", 4) == 0
    assert call(*options, whole, "--datasets", 4) == 0
    assert "leave out" not in capsys.readouterr().err
    tables = [pd.read_parquet(folder / "results.parquet") for folder in (parted, whole)]
    pd.testing.assert_frame_equal(*(table[COLUMNS] for table in tables))
    assert call(*options, parted, "--datasets", 3) == 0
    assert len(pd.read_parquet(parted / "results.parquet")) == 3 * 3
    said = capsys.readouterr().err
    assert "holds 1 part more" in said
    assert "--datasets 4 takes all" in said
    (whole / "summary.csv").unlink()
    (whole / "summary.csv").mkdir()  # as a full disk, it cannot be written
    assert call(*options, whole, "--datasets", 4) == 2
    assert f"--output {whole} cannot be written" in capsys.readouterr().err.splitlines()[-1]


def test_a_killed_run_goes_on(forked, tmp_path, fs):
    """Kill -9 in the middle; the rest is made, and nothing is made again."""
    out = tmp_path / "out"
    options = ["lengths", *SMALL, *LENGTHS, "--checkpoint", fs, "--output", str(out), "--datasets"]
    parts = out / "parts"
    run = forked(main, *options, 100_000)
    run.wait_until(lambda: parts.is_dir() and len(list(parts.glob("0*.parquet"))) >= 2)
    run.kill()
    made = {path: path.stat().st_mtime_ns for path in sorted(parts.glob("0*.parquet"))}
    assert main([*options, str(len(made) + 1)]) == 0
    assert {path: path.stat().st_mtime_ns for path in made} == made
    # What was being written is made again, or of a dataset that is not wanted now.
    assert not list(parts.glob(f".{len(made):06d}.parquet.*"))
    whole = pd.read_parquet(out / "results.parquet")
    assert whole["dataset"].unique().tolist() == list(range(len(made) + 1))
    again = tmp_path / "again"
    assert main([*options[:-2], str(again), "--datasets", "2"]) == 0
    same = whole[whole["dataset"] < 2][COLUMNS].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, pd.read_parquet(again / "results.parquet")[COLUMNS])


def test_a_reference_set_from_another_run(tmp_path, fs, causal, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert call("--checkpoint", causal, "--output", first, "--datasets", 2) == 0
    reference = tmp_path / "reference.yaml"
    reference.write_text("models: [causal]\nruns: [first]\n")
    options = ["--checkpoint", fs, "--output", second, "--datasets", 2, "--reference", reference]
    assert call(*options) == 0
    ours, theirs = (pd.read_parquet(f / "results.parquet") for f in (second, first))
    low, high = (theirs[theirs["dataset"] == 0]["roc_auc"].agg(f) for f in ("min", "max"))
    expected = (ours["roc_auc"][0] - low) / (high - low)
    assert ours["normalised_roc_auc"][0] == pytest.approx(expected)
    assert call(*options[:4], "--reference", reference, "--datasets", 3) == 2  # one too many
    capsys.readouterr()
    third = ["--output", tmp_path / "third", *options[4:]]
    assert call("--checkpoint", fs, "--names", "causal", *third) == 2
    said = capsys.readouterr().err
    assert "'causal', which is one model in this run and another, or" in said
    assert f"in {first}: give each a name of its own with --names" in said
    assert not third[1].exists()
    assert call("--checkpoint", causal, *third) == 0  # the same model may be in both
    settings = json.loads((first / "run.json").read_text())
    lengths = settings["datasets"]["lengths"]
    for change in ({"seed": 1}, {"lengths": [lengths[0] - 1, *lengths[1:]]}):
        changed = settings | {"datasets": settings["datasets"] | change}
        (first / "run.json").write_text(json.dumps(changed))
        capsys.readouterr()
        assert call(*options) == 2
        assert "is a run over other datasets" in capsys.readouterr().err


def test_the_cost_of_all_lengths(fs, causal, capsys, tmp_path):
    assert call("--checkpoint", fs, causal, "--cost", 1) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines if "---" not in line] == [
        "| model",
        "| fs",
        "| causal",
    ]
    assert not any(path.is_dir() for path in tmp_path.iterdir())


BAD = [
    (["--lengths", "50", "400"], ["length 400", "300"]),
    (["--lengths", "100", "50"], ["100 50", "from short to long"]),
    (["--lengths", "2", "50"], ["length 2", "3 classes"]),
    (["--lengths", "x"], ["x: give a whole number"]),
    (["--shard", "0/2"], ["--shard: 0/2: give i/n with i from 1 to n"]),
    (["--oracle", "nobody"], ["--oracle nobody", "fs"]),
    (["--oracle", "softmax"], ["--oracle softmax", "no matrix state"]),
    (["--oracle"], ["--oracle softmax", "no matrix state", "Or name other models after --oracle."]),
    (["--blocks", "nobody"], ["--blocks nobody"]),
    (["--block-rows", "0"], ["0: give a whole number"]),
    (["--classes", "12"], ["at most 10 classes", "have 12: give --classes 10 or fewer.\n"]),
    (["--features", "30"], ["at most 20 columns", "have 30: give --features 20 or fewer.\n"]),
    (["--names", "a"], ["1 name for 2"]),
    (["--names", "a", "a"], ["'a' occurs twice"]),
    (["--reference", "/nowhere.yaml"], ["/nowhere.yaml"]),
    (["--device", "tpu"], ["device='tpu'"]),
    (["--checkpoint", "/nowhere.ckpt"], ["/nowhere.ckpt"]),
    (
        ["--checkpoint", "/nowhere.ckpt", "/nowhere.ckpt"],
        ["/nowhere.ckpt is given twice: give each"],
    ),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_input_is_one_line_and_leaves_nothing(options, words, tmp_path, fs, softmax, capsys):
    out = tmp_path / "out"
    assert call("--checkpoint", fs, softmax, "--output", out, "--datasets", 1, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("tabicl-linear lengths: ")
    assert all(word in captured.err for word in words), captured.err
    assert not out.exists()


@pytest.mark.parametrize("text", ["[a]", "models: a", "models: []", "models: [a]\nx: 1", "{"])
def test_references_of_another_form_are_refused(text, tmp_path, fs, capsys):
    path = tmp_path / "reference.yaml"
    path.write_text(text)
    options = ["--checkpoint", fs, "--output", tmp_path / "out", "--reference", path]
    assert call(*options) == 2
    assert str(path) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_names_that_no_run_has_are_refused(tmp_path, fs, capsys):
    path = tmp_path / "reference.yaml"
    path.write_text("models: [someone]")
    out = tmp_path / "out"
    assert call("--checkpoint", fs, "--output", out, "--reference", path, "--datasets", 1) == 2
    assert "someone" in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_of_another_run_is_refused(tmp_path, fs, causal, capsys):
    out = tmp_path / "out"
    options = ["--output", out, "--datasets", 1]
    assert call("--checkpoint", fs, *options) == 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    capsys.readouterr()
    for other in (["--checkpoint", causal], ["--checkpoint", fs, "--seed", 1]):
        assert call(*other, *options) == 2
        captured = capsys.readouterr()
        assert "holds another run" in captured.err
        assert captured.err.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before

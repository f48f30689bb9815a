"""`tabicl-linear oracle` from end to end, on synthetic datasets and on a table."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_model import RECIPE, save, untrained

from tabicl_linear import recipe
from tabicl_linear.__main__ import main
from tabicl_linear.analysis import OracleOptions

FEW = ["--max-epochs", "2"]


@pytest.fixture
def checkpoint(tmp_path):
    return str(save(untrained(), tmp_path / "tiny.ckpt"))


def table(path, rows=120):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, rows)
    x = pd.DataFrame(rng.normal(size=(rows, 3)) + y[:, None], columns=list("abc"))
    x["kind"] = np.where(rng.random(rows) < 0.5, "left", "right")
    x["y"] = np.array(["low", "middle", "high"])[y]
    x.to_csv(path, index=False)
    return str(path)


def call(*options):
    return main(["oracle", *map(str, options)])


def test_synthetic_datasets(tmp_path, checkpoint, capsys):
    out = tmp_path / "out"
    options = ["--checkpoint", checkpoint, "--output", out, "--datasets", 2, "--rows", 300, *FEW]
    assert call(*options) == 0
    result = pd.read_csv(out / "oracle.csv")
    assert result[["dataset", "model", "num_rows", "epochs"]].to_numpy().tolist() == [
        [0, "tiny", 300, 2],
        [1, "tiny", 300, 2],
    ]
    assert (result["best_loss"] <= result["start_loss"]).all()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| tiny | ROC-AUC | ")
    assert "2 datasets or folds of 300 rows" in lines[-1]
    assert call(*options) == 0
    assert "2 of 2 parts are there already" in capsys.readouterr().err
    (out / "oracle.csv").unlink()
    (out / "oracle.csv").mkdir()  # as a full disk, it cannot be written
    assert call(*options) == 2
    assert f"--output {out} cannot be written" in capsys.readouterr().err.splitlines()[-1]


def test_a_table(tmp_path, checkpoint):
    out = tmp_path / "out"
    options = ["--checkpoint", checkpoint, "--output", out]
    options += ["--table", table(tmp_path / "t.csv"), "--target", "y", "--folds", 2]
    assert call(*options, *FEW) == 0
    result = pd.read_csv(out / "oracle.csv")
    assert result["num_rows"].tolist() == [60, 60]
    assert result[["roc_auc", "oracle_roc_auc"]].map(lambda area: 0 <= area <= 1).all().all()
    assert (result["largest_update"] >= result["smallest_update"]).all()


def test_warnings_of_columns_come_once_and_not_from_each_fold(tmp_path, checkpoint, capsys):
    path = table(tmp_path / "t.csv")
    rows = pd.read_csv(path)
    rows.assign(age=[*range(len(rows) - 3), *["old"] * 3]).to_csv(path, index=False)
    options = ["--table", path, "--target", "y", "--folds", 3, *FEW]
    assert call("--checkpoint", checkpoint, "--output", tmp_path / "out", *options) == 0
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "mixes numbers" in x]
    assert line.startswith("tabicl-linear oracle: warning: Column 'age' mixes numbers")
    assert "3 of 120" in line


def test_the_authors_variant_is_another_run(tmp_path, checkpoint, capsys):
    options = ["--checkpoint", checkpoint, "--output", tmp_path / "out", "--datasets", 1]
    options += ["--rows", 300, *FEW]
    assert call(*options) == 0
    assert call(*options, "--start", "all_rows") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert 'oracle {"start": "training_rows"} and not {"start": "all_rows"}' in error


def test_every_option_of_the_optimisation_is_taken(tmp_path, checkpoint):
    chosen = {"learning_rate": 0.5, "weight_decay": 0.25, "held_out": 0.5, "batch_rows": 9}
    chosen |= {"gradient_rows": 4, "pass_rows": 20, "max_epochs": 5, "patience": 1}
    chosen |= {"tolerance": 10.0, "start": "all_rows", "seed": 3}
    words = [(f"--{name.replace('_', '-')}", value) for name, value in chosen.items()]
    options = ["--checkpoint", checkpoint, "--output", tmp_path / "out", "--datasets", 1]
    options += ["--rows", 60, "--features", 4, "--classes", 3]
    options += ["--data-seed", 7, "--absolute-rate"]
    assert call(*options, *(word for pair in words for word in pair)) == 0
    settings = json.loads((tmp_path / "out" / "run.json").read_text())
    assert settings["oracle"] == chosen | {"absolute_rate": True}
    assert all(settings["oracle"][name] != value for name, value in asdict(OracleOptions()).items())
    sizes = ("seed", "num_features", "num_classes")
    assert [settings["datasets"][name] for name in sizes] == [7, 4, 3]
    # No gain is one within such a tolerance, and one pass without a gain ends it.
    assert pd.read_csv(tmp_path / "out" / "oracle.csv")["epochs"].tolist() == [1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--table", "t.csv"], ["--table and --target"]),
        (["--table", "/nowhere.csv", "--target", "y"], ["/nowhere.csv"]),
        (["--table", "TABLE", "--target", "z"], ["no column 'z'"]),
        (["--table", "TABLE", "--target", "a"], ["a"]),
        (["--table", "TABLE", "--target", "y", "--folds", "100"], ["fewer than 100 folds"]),
        (["--table", "TABLE", "--target", "y", "--folds", "1"], ["--folds 1"]),
        *(
            (["--table", "TABLE", "--target", "y", option, "9"], [f"{option} 9", "synthetic"])
            for option in ("--rows", "--datasets", "--features", "--classes", "--data-seed")
        ),
        (["--folds", "3"], ["--folds 3", "--table"]),
        (["--learning-rate", "0"], ["learning_rate=0.0"]),
        (["--held-out", "1"], ["held_out=1.0"]),
        (["--rows", "3"], ["length 3", "5 classes"]),
        (["--features", "999"], ["columns", "give --features"]),
        (["--classes", "11", "--rows", "60"], ["11", "give --classes"]),
        (["--checkpoint", "/nowhere.ckpt"], ["/nowhere.ckpt"]),
        (["--start", "rows"], ["--start"]),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(options, words, tmp_path, checkpoint, capsys):
    path, out = table(tmp_path / "t.csv"), tmp_path / "out"
    options = [path if option == "TABLE" else option for option in options]
    assert call("--checkpoint", checkpoint, "--output", out, *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("tabicl-linear oracle: ")
    assert all(word in captured.err for word in words), captured.err
    assert not out.exists()


def test_models_without_matrix_states_are_refused(tmp_path, capsys):
    parts = RECIPE | {"mixer": {"class_path": "tabicl_linear.mixers.ridge.Ridge", "init_args": {}}}
    weights = {f"model.{k}": v for k, v in recipe.build(parts).state_dict().items()}
    path = tmp_path / "ridge.ckpt"
    torch.save({"state_dict": weights, "hyper_parameters": parts}, path)
    assert call("--checkpoint", path, "--output", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert "Ridge has no matrix state" in error
    assert not (tmp_path / "out").exists()

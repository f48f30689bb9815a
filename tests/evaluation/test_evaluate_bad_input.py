"""`tabicl-linear evaluate` refuses what it cannot do, in one line and before it writes anything."""

import json
import os
from contextlib import ExitStack

import pandas as pd
import pytest
import tiny_model
from evaluation import benchmark_folder

from tabicl_linear.cli.lock import locked

BASELINE = "logistic_regression"


def error(capsys):
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("tabicl-linear evaluate: ")
    return lines[0]


def edited(path, old, new):
    """Change `evaluation.json` as a version without digests would have written it."""
    content = json.loads(path.read_text().replace(old, new))
    del content["digest"]
    path.write_text(json.dumps(content))


def changed(folder, name, change):
    path = folder / f"{name}.parquet"
    frame = pd.read_parquet(path)
    change(frame).to_parquet(path)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"suite": "large"}, "has no such suite (small, other)"),
            ({"suite": None}, "give --suite, one of small, other"),
            ({"benchmark": "folder:/nowhere"}, "index.csv cannot be read"),
            ({"benchmark": "cc18"}, "give openml-cc18, tabarena or folder:PATH"),
            ({"baseline": False}, "give --model or --baseline"),
        ],
    )
    def test_benchmarks(self, evaluate, tmp_path, capsys, options, words):
        assert evaluate(**options) == 2
        assert words in error(capsys)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--baseline", "gradient"], "--baseline gradient: give one of"),
            (["--model", "nowhere.ckpt"], "there is no file nowhere.ckpt"),
            (["--baseline", BASELINE], "two models of the name logistic_regression"),
            (["--shard", "4/3"], "--shard: 4/3: give i/n with i from 1 to n"),
            (["--jobs", "0"], "whole number of at least 1"),
            (["--ensemble", "large"], "invalid choice: 'large'"),
        ],
    )
    def test_options(self, evaluate, tmp_path, capsys, options, words):
        assert evaluate(*options) == 2
        assert words in error(capsys)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda frame: frame.assign(target="yes"), "The target of the table three is constant"),
            (lambda frame: frame.drop(columns="target"), "has no target column 'target'"),
            (lambda frame: frame.assign(target=None), "is missing in 120 of 120 rows"),
            (lambda frame: frame[:50], "has 50 rows"),
            (lambda frame: frame[["target"]], "The table three has no column but its target"),
            (
                lambda frame: frame.assign(number=[[1, 2]] * len(frame)),
                "The column 'number' of the table three holds neither numbers nor categories",
            ),
        ],
    )
    def test_tables(self, evaluate, tmp_path, capsys, change, words):
        folder = benchmark_folder.write(tmp_path / "tables")
        changed(folder, "three", change)
        assert evaluate(benchmark=f"folder:{folder}") == 2
        assert words in error(capsys)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("column", "cell", "words"),
        [
            ("file", None, "file is empty in 1 of 3 rows"),
            ("target_column", None, "target_column is empty in 1 of 3 rows"),
            ("file", "gone.parquet", "The table three is listed, but there is no file"),
            ("openml_id", "x1", "the openml_id of three is 'x1'; give a whole number"),
            ("openml_id", 1.5, "the openml_id of three is 1.5; give a whole number"),
            ("openml_id", -3, "the openml_id of three is -3.0; give a whole number"),
        ],
    )
    def test_cells_of_the_index(self, evaluate, tmp_path, capsys, column, cell, words):
        folder = benchmark_folder.write(tmp_path / "tables")
        index = pd.read_csv(folder / "index.csv").astype({column: object})
        index.loc[index["name"] == "three", column] = cell
        index.to_csv(folder / "index.csv", index=False)
        assert evaluate(benchmark=f"folder:{folder}") == 2
        assert words in error(capsys)
        assert not (tmp_path / "out").exists()

    def test_no_table_at_all(self, evaluate, tmp_path, capsys):
        options = ("--offline", "--cache", tmp_path / "nowhere")
        assert evaluate(*options, benchmark="tabarena", suite=None) == 2
        said = error(capsys)
        assert "None of the 38 tables of tabarena can be used; Amazon_employee_access: " in said
        assert "not in the cache" in said
        assert not (tmp_path / "out").exists()

    def test_files_that_are_none(self, evaluate, tmp_path, capsys):
        folder = benchmark_folder.write(tmp_path / "tables")
        (folder / "three.parquet").write_bytes(b"nothing")
        assert evaluate(benchmark=f"folder:{folder}") == 2
        said = error(capsys)
        assert "The table three" in said
        assert "cannot be read as Parquet (" in said
        assert said.endswith("); write or download the file again.")
        (folder / "index.csv").write_bytes(b"name,file\n\xff,two.parquet\n")
        assert evaluate(benchmark=f"folder:{folder}") == 2
        assert error(capsys).endswith("; mend it.")
        (folder / "index.csv").write_text("name,file\ntwo,two.parquet\n")
        assert evaluate(benchmark=f"folder:{folder}") == 2
        assert "lacks the columns target_column" in error(capsys)

    def test_a_folder_of_another_protocol_or_model(self, evaluate, tmp_path, model, capsys):
        assert evaluate("--model", model) == 0
        before = (tmp_path / "out" / "results.csv").read_bytes()
        capsys.readouterr()
        assert evaluate(suite="other") == 2
        assert "holds results of another benchmark (small, and here other)" in error(capsys)
        assert evaluate("--ensemble", "paper") == 2
        assert "of another ensemble" in error(capsys)
        assert (
            evaluate(
                "--model",
                "tiny=" + str(tiny_model.save(tiny_model.untrained(1), tmp_path / "new.ckpt")),
            )
            == 2
        )
        assert "holds results of another tiny" in error(capsys)
        assert (tmp_path / "out" / "results.csv").read_bytes() == before

    def test_a_folder_of_other_options_of_a_baseline(self, evaluate, tmp_path, capsys):
        assert evaluate() == 0
        capsys.readouterr()
        path = tmp_path / "out" / "evaluation.json"
        edited(path, '"sklearn ', '"sklearn 0.')
        assert evaluate() == 2
        said = error(capsys)
        assert "of another logistic_regression (sklearn 0." in said
        assert "name another folder." in said

    def test_a_folder_of_other_folds(self, evaluate, tmp_path, capsys):
        assert evaluate() == 0
        capsys.readouterr()
        path = tmp_path / "out" / "evaluation.json"
        edited(path, '"folds": 5', '"folds": 3')
        assert evaluate() == 2
        assert "of another protocol (folds: 3, and here 5); name another folder" in error(capsys)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("{", "cannot be read"),
            ("[]", "is not of an evaluation (it lacks benchmark, protocol"),
            ('{"benchmark": "small"}', "is not of an evaluation (it lacks protocol, ensemble"),
        ],
    )
    def test_a_folder_of_something_else(self, evaluate, tmp_path, capsys, text, words):
        (tmp_path / "out").mkdir()
        path = tmp_path / "out" / "evaluation.json"
        path.write_text(text)
        assert evaluate() == 2
        assert words in error(capsys)
        assert path.read_text() == text

    def test_a_table_that_is_another_now(self, evaluate, tmp_path, capsys):
        folder = benchmark_folder.write(tmp_path / "tables")
        assert evaluate(benchmark=f"folder:{folder}") == 0
        capsys.readouterr()
        changed(folder, "three", lambda frame: frame[:110])
        assert evaluate(benchmark=f"folder:{folder}") == 2
        assert "The table three is not the one" in error(capsys)

    @pytest.mark.parametrize(
        ("running", "refused", "allowed"),
        [
            (None, [None, "1/2"], []),
            ("1/2", [None, "1/2"], ["2/2"]),
        ],
    )
    def test_two_runs_into_one_folder(self, evaluate, tmp_path, capsys, running, refused, allowed):
        out = tmp_path / "out"
        out.mkdir()
        with ExitStack() as others:
            others.enter_context(locked(out, shared=running is not None))
            if running is not None:
                others.enter_context(locked(out, f".lock-{running.replace('/', '-of-')}"))
            for part in refused:
                assert evaluate(*(["--shard", part] if part else [])) == 2
                assert f"out is in use by process {os.getpid()}" in error(capsys)
                assert not (out / "evaluation.json").exists()
            for part in allowed:
                assert evaluate("--shard", part) == 0

    def test_a_broken_result_is_named_and_scored_again(self, evaluate, tmp_path, capsys):
        assert evaluate() == 0
        capsys.readouterr()
        path = next((tmp_path / "out" / "trials").glob("*.json"))
        path.write_text("{")
        assert evaluate() == 0
        assert f"{path} is damaged (it is no JSON" in capsys.readouterr().err
        assert json.loads(path.read_text())["digest"]


def test_a_name_too_long_for_a_file_is_refused_before_the_folder(
    evaluate, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("tabicl_linear.evaluation.candidates.load_model", lambda path, **_: None)
    (tmp_path / "m.ckpt").touch()
    assert evaluate("--model", f"{'n' * 300}={tmp_path / 'm.ckpt'}") == 2
    assert "at most 100 letters" in error(capsys)
    assert not (tmp_path / "out").exists()

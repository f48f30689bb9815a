"""`tabicl-linear evaluate` on folders: results, continuing, parts, failures and bad input."""

import fcntl
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import tiny_model
from evaluation import benchmark_folder
from sklearn.dummy import DummyClassifier

from tabicl_linear.__main__ import main
from tabicl_linear.evaluation import openml_cache, trials
from tabicl_linear.evaluation.baselines import BASELINES, Baseline
from tabicl_linear.evaluation.metrics import METRICS
from tabicl_linear.evaluation.openml_lists import TABLES
from tabicl_linear.evaluation.trials import COLUMNS, TIMES

BASELINE = "logistic_regression"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return benchmark_folder.write(tmp_path_factory.mktemp("made") / "tables")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model.save(tiny_model.untrained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")


@pytest.fixture
def evaluate(tables, tmp_path):
    """Call the verb on the small suite and return the exit code."""

    def call(*options, output="out", suite="small", benchmark=f"folder:{tables}", baseline=True):
        base = ["--benchmark", benchmark, "--output", str(tmp_path / output), "--threads", "1"]
        base += ["--suite", suite] if suite else []
        base += ["--baseline", BASELINE] if baseline else []
        return main(["evaluate", *base, *map(str, options)])

    return call


def scores(folder):
    """Scores without times, in the order of the key."""
    found = pd.read_csv(folder / "results.csv")
    found = found[found["metric"].isin(METRICS)].drop(columns="seconds")
    return found.sort_values(["model", "dataset", "fold", "metric"]).reset_index(drop=True)


def error(capsys):
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("tabicl-linear evaluate: ")
    return lines[0]


class TestResults:
    def test_a_row_for_every_score(self, evaluate, tmp_path, model, capsys):
        assert evaluate("--model", f"mine={model}") == 0
        table = pd.read_csv(tmp_path / "out" / "results.csv")
        assert list(table) == COLUMNS
        assert len(table) == 2 * 2 * 5 * (len(METRICS) + len(TIMES))
        assert list(dict.fromkeys(table["model"])) == ["mine", BASELINE]
        assert set(table["benchmark"]) == {"small"}
        assert table["error"].isna().all()
        assert table["value"].notna().all()
        assert dict(zip(table["dataset"], table["openml_id"].fillna(0), strict=True)) == {
            "two": 0,
            "three": 101,
        }
        wide = table.pivot(
            index=["model", "dataset", "fold", "seconds"], columns="metric", values="value"
        ).reset_index()
        np.testing.assert_allclose(wide["seconds"], wide.fit_seconds + wide.predict_seconds)
        assert wide.groupby("model")["roc_auc"].mean()[BASELINE] > 0.6
        assert capsys.readouterr().out == ""

    def test_what_the_folder_says_of_itself(self, evaluate, tmp_path, model):
        assert evaluate("--model", model, "--ensemble", "paper") == 0
        content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        assert content["benchmark"] == "small"
        assert content["ensemble"] == "paper"
        assert content["protocol"] == {
            "max_rows": None,
            "max_columns": 20,
            "max_classes": 10,
            "folds": 5,
            "seed": 42,
        }
        assert set(content["models"]) == {"tiny", BASELINE}
        assert len(content["models"]["tiny"]) == 64
        assert content["models"][BASELINE].startswith("sklearn ")
        assert {"python", "tabicl_linear", "torch", "scikit-learn"} <= set(content["versions"])
        sizes = [(t["name"], t["rows"], t["columns"], t["classes"]) for t in content["datasets"]]
        assert sizes == [("two", 120, 2, 2), ("three", 120, 2, 3)]

    def test_the_paper_s_ensemble_has_ten_members(self, model):
        from tabicl_linear.estimator.presets import PRESETS
        from tabicl_linear.evaluation.candidates import candidates

        made = [candidates([str(model)], [], name)[0].make(1) for name in ("paper", "default")]
        assert [one.ensemble for one in made] == ["paper", "default"]
        assert [PRESETS[one.ensemble].n_estimators for one in made] == [10, 8]

    def test_a_suite_of_the_paper_has_its_caps(self, tables, tmp_path, evaluate):
        folder = benchmark_folder.write(tmp_path / "large", rows=1100)
        index = pd.read_csv(folder / "index.csv").iloc[:1].assign(suite="openml-cc18-30")
        index.to_csv(folder / "index.csv", index=False)
        assert evaluate(benchmark=f"folder:{folder}", suite=None) == 0
        content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        assert content["benchmark"] == "openml-cc18"
        assert content["datasets"][0]["rows"] == 1000


class TestContinuing:
    def test_nothing_is_computed_twice(self, evaluate, tmp_path, monkeypatch):
        assert evaluate() == 0
        before = (tmp_path / "out" / "results.csv").read_bytes()
        (tmp_path / "out" / "results.csv").unlink()
        monkeypatch.setattr(trials, "run", None)
        assert evaluate() == 0
        assert (tmp_path / "out" / "results.csv").read_bytes() == before

    def test_a_run_killed_anywhere_goes_on(self, evaluate, tables, tmp_path):
        command = [sys.executable, "-m", "tabicl_linear", "evaluate", "--benchmark"]
        command += [f"folder:{tables}", "--suite", "small", "--baseline", BASELINE]
        command += ["hist_gradient_boosting", "--output", str(tmp_path / "out")]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        done = tmp_path / "out" / "trials"
        deadline = time.monotonic() + 60
        while len(list(done.glob("*.json"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = {path: path.stat().st_mtime_ns for path in done.glob("*.json")}
        assert 3 <= len(kept) < 20
        assert evaluate("--baseline", "hist_gradient_boosting") == 0
        assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
        assert evaluate("--baseline", "hist_gradient_boosting", output="whole") == 0
        pd.testing.assert_frame_equal(scores(tmp_path / "out"), scores(tmp_path / "whole"))

    def test_parts_make_a_whole(self, evaluate, tmp_path):
        assert evaluate(output="whole") == 0
        for part in ("2/3", "1/3"):
            assert evaluate("--shard", part) == 0
        assert len(scores(tmp_path / "out")) == 7 * len(METRICS)
        assert evaluate("--shard", "3/3") == 0
        pd.testing.assert_frame_equal(scores(tmp_path / "out"), scores(tmp_path / "whole"))

    def test_processes_give_the_same(self, evaluate, tmp_path):
        assert evaluate(output="whole") == 0
        assert evaluate("--jobs", 2) == 0
        pd.testing.assert_frame_equal(scores(tmp_path / "out"), scores(tmp_path / "whole"))

    def test_models_may_join_later(self, evaluate, tmp_path):
        assert evaluate() == 0
        assert evaluate("--baseline", "random_feature_ridge", baseline=False) == 0
        assert set(scores(tmp_path / "out")["model"]) == {BASELINE, "random_feature_ridge"}
        content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        assert set(content["models"]) == {BASELINE, "random_feature_ridge"}


class Broken(DummyClassifier):
    """Fails on three classes until it is mended."""

    mended = False

    def fit(self, x, y):
        if not self.mended and len(set(y)) == 3:
            raise RuntimeError("out of\nluck")
        return super().fit(x, y)


class TestFailures:
    def test_a_failure_is_a_row_with_its_reason(self, evaluate, tmp_path, monkeypatch, capsys):
        monkeypatch.setitem(BASELINES, "broken", Baseline(lambda threads=None: Broken()))
        assert evaluate("--baseline", "broken") == 0
        assert "5 trials failed" in capsys.readouterr().err
        table = pd.read_csv(tmp_path / "out" / "results.csv")
        failed = table[table["error"].notna()]
        assert set(zip(failed["model"], failed["dataset"], strict=True)) == {("broken", "three")}
        assert set(failed["error"]) == {"RuntimeError: out of luck"}
        assert failed[["value", "seconds"]].isna().all(axis=None)
        assert len(failed) == 5 * (len(METRICS) + len(TIMES))

        monkeypatch.setattr(Broken, "mended", True)
        assert evaluate("--baseline", "broken") == 0
        assert pd.read_csv(tmp_path / "out" / "results.csv")["error"].notna().sum() == len(failed)
        assert evaluate("--baseline", "broken", "--retry-failed") == 0
        assert pd.read_csv(tmp_path / "out" / "results.csv")["error"].isna().all()

    def test_a_table_that_openml_does_not_give(self, evaluate, tables, tmp_path, monkeypatch):
        monkeypatch.setitem(TABLES, "tabarena", {1: "here", 2: "missing"})
        cache = tmp_path / "cache"

        def fetched(self, number):
            if number == 2 and not (tmp_path / "mended").exists():
                raise openml_cache.OpenMLFault("has no table 2", silent=False)
            self.folder.mkdir(exist_ok=True)
            frame = pd.read_parquet(tables / "two.parquet")
            write_cached(frame, self._path(number))

        monkeypatch.setattr(openml_cache.OpenMLCache, "_fetch_table", fetched)
        options = ("--cache", cache)
        assert evaluate(*options, benchmark="tabarena", suite=None) == 0
        table = pd.read_csv(tmp_path / "out" / "results.csv")
        assert table.groupby("dataset")["error"].count().to_dict() == {"here": 0, "missing": 40}
        (tmp_path / "mended").touch()
        assert evaluate(*options, benchmark="tabarena", suite=None) == 0
        table = pd.read_csv(tmp_path / "out" / "results.csv")
        assert table["error"].isna().all()
        content = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        assert [one["rows"] for one in content["datasets"]] == [120, 120]


def write_cached(frame, path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    known = {openml_cache.METADATA: json.dumps({"target": "target"})}
    pq.write_table(pa.Table.from_pandas(frame).replace_schema_metadata(known), path)


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
            (["--shard", "4/3"], "give I/N"),
            (["--shard", "0/3"], "give I/N"),
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
        ],
    )
    def test_tables(self, evaluate, tmp_path, capsys, change, words):
        folder = benchmark_folder.write(tmp_path / "tables")
        changed(folder, "three", change)
        assert evaluate(benchmark=f"folder:{folder}") == 2
        assert words in error(capsys)
        assert not (tmp_path / "out").exists()

    def test_files_that_are_none(self, evaluate, tmp_path, capsys):
        folder = benchmark_folder.write(tmp_path / "tables")
        (folder / "three.parquet").write_bytes(b"nothing")
        assert evaluate(benchmark=f"folder:{folder}") == 2
        assert "The table three" in error(capsys)
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

    def test_a_table_that_is_another_now(self, evaluate, tmp_path, capsys):
        folder = benchmark_folder.write(tmp_path / "tables")
        assert evaluate(benchmark=f"folder:{folder}") == 0
        capsys.readouterr()
        changed(folder, "three", lambda frame: frame[:110])
        assert evaluate(benchmark=f"folder:{folder}") == 2
        assert "The table three is not the one" in error(capsys)

    def test_two_runs_into_one_folder(self, evaluate, tmp_path, capsys):
        (tmp_path / "out").mkdir()
        with (tmp_path / "out" / ".lock").open("w") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            assert evaluate() == 2
            assert "is in use by" in error(capsys)
            assert evaluate("--shard", "1/2") == 0

    def test_a_broken_result_is_named(self, evaluate, tmp_path, capsys):
        assert evaluate() == 0
        capsys.readouterr()
        next((tmp_path / "out" / "trials").glob("*.json")).write_text("{")
        assert evaluate() == 2
        assert "is no result of a trial" in error(capsys)

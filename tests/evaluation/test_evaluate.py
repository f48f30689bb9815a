"""`tabicl-linear evaluate` on folders: results, continuing, parts and failures."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from evaluation import benchmark_folder
from sklearn.dummy import DummyClassifier

from tabicl_linear.__main__ import main
from tabicl_linear.evaluation import openml_cache, trials
from tabicl_linear.evaluation.baselines import BASELINES, Baseline
from tabicl_linear.evaluation.metrics import METRICS
from tabicl_linear.evaluation.openml_lists import TABLES
from tabicl_linear.evaluation.trials import TIMES
from tabicl_linear.evaluation_file import COLUMNS

BASELINE = "logistic_regression"


def scores(folder):
    """Scores without times, in the order of the key."""
    result = pd.read_csv(folder / "results.csv")
    result = result[result["metric"].isin(METRICS)].drop(columns="seconds")
    return result.sort_values(["model", "dataset", "fold", "metric"]).reset_index(drop=True)


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
        from tabicl_linear.estimator.plan import PRESETS
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

    def test_a_run_killed_anywhere_goes_on(self, evaluate, forked, tables, tmp_path):
        options = ["--benchmark", f"folder:{tables}", "--suite", "small", "--baseline", BASELINE]
        options += ["hist_gradient_boosting", "--output", tmp_path / "out"]
        run, done = forked(main, "evaluate", *options), tmp_path / "out" / "trials"
        run.wait_until(lambda: len(list(done.glob("*.json"))) >= 3)
        run.kill()
        times = {path: path.stat().st_mtime_ns for path in done.glob("*.json")}
        assert 3 <= len(times) < 20
        assert evaluate("--baseline", "hist_gradient_boosting") == 0
        assert all(path.stat().st_mtime_ns == when for path, when in times.items())
        assert evaluate("--baseline", "hist_gradient_boosting", output="whole") == 0
        pd.testing.assert_frame_equal(scores(tmp_path / "out"), scores(tmp_path / "whole"))

    @pytest.mark.parametrize(
        ("number", "remedy"),
        [
            (errno.ENOSPC, "make room and repeat the command to go on"),
            (errno.EACCES, "name another folder"),
        ],
    )
    def test_a_trial_that_cannot_be_kept_ends_the_run(
        self, evaluate, tmp_path, monkeypatch, capsys, number, remedy
    ):
        """What was computed before stays, so a full disk is no reason for another folder."""

        def refused(partial, path):
            if Path(path).parent.name == "trials" and len(list(Path(path).parent.iterdir())) > 2:
                raise OSError(number, os.strerror(number))
            replace(partial, path)

        replace = os.replace
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", refused)
            assert evaluate() == 2
        assert capsys.readouterr().err.endswith(f".json: {os.strerror(number)}; {remedy}.\n")
        assert len(list((tmp_path / "out" / "trials").iterdir())) == 2
        assert evaluate() == 0

    def test_parts_make_a_whole(self, evaluate, tmp_path):
        assert evaluate(output="whole") == 0
        for part in ("2/3", "1/3"):
            assert evaluate("--shard", part) == 0
        assert len(scores(tmp_path / "out")) == 7 * len(METRICS)
        assert evaluate("--shard", "3/3") == 0
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
        assert evaluate("--baseline", "broken") == 1
        assert "5 trials failed" in capsys.readouterr().err
        table = pd.read_csv(tmp_path / "out" / "results.csv")
        failed = table[table["error"].notna()]
        assert set(zip(failed["model"], failed["dataset"], strict=True)) == {("broken", "three")}
        assert set(failed["error"]) == {"RuntimeError: out of luck"}
        assert failed[["value", "seconds"]].isna().all(axis=None)
        assert len(failed) == 5 * (len(METRICS) + len(TIMES))

        monkeypatch.setattr(Broken, "mended", True)
        assert evaluate("--baseline", "broken") == 1  # not repeated
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
        assert evaluate(*options, benchmark="tabarena", suite=None) == 1
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

    metadata = {openml_cache.METADATA: json.dumps({"target": "target"})}
    pq.write_table(pa.Table.from_pandas(frame).replace_schema_metadata(metadata), path)

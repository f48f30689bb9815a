"""The page of results: end to end on tiny tables, what is unfinished, and where a model is weak."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny_model
from evaluation import benchmark_folder
from few_trees import few_trees
from scipy import stats

from experiments.results import run as results
from experiments.results import weak
from tabicl_linear._version import __version__
from tabicl_linear.estimator import random_feature_ridge
from tabicl_linear.evaluation import benchmarks
from tabicl_linear.evaluation.benchmarks import folder_benchmark
from tabicl_linear.report import benchmark_figures
from tabicl_linear.report.comparison import holm
from tabicl_linear.shipped import DEFAULT, WEIGHTS

__all__ = ["few_trees"]
pytestmark = pytest.mark.usefixtures("few_trees", "few_folds")
FOLDS = 2
"""In place of five: what is done with the scores of a fold, each shows."""
BASELINES = ["logistic_regression", "random_feature_ridge"]


@pytest.fixture(scope="module")
def few_folds():
    with pytest.MonkeyPatch.context() as patch:
        for name, protocol in benchmarks.BENCHMARKS.items():
            patch.setitem(benchmarks.BENCHMARKS, name, replace(protocol, folds=FOLDS))
        yield


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two tables of the one suite, one of the other."""
    folder = benchmark_folder.write(tmp_path_factory.mktemp("made") / "tables")
    index = pd.read_csv(folder / "index.csv")
    index["suite"] = index["suite"].map({"small": "openml-cc18-30", "other": "tabarena"})
    index.to_csv(folder / "index.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    return [
        tiny_model.save(tiny_model.untrained(seed), folder / f"{seed}.ckpt") for seed in (0, 1, 2)
    ]


@pytest.fixture(scope="module")
def made(few_trees, few_folds, tables, weights, tmp_path_factory):
    """A finished folder and its page."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WEIGHTS, DEFAULT, weights[0])
        assert call(tables, folder, "--demo", weights[1]) == 0
    return folder


def call(tables, folder, *options, baselines=BASELINES):
    return results.main(
        [
            *("--tables", str(tables), "--output", str(folder / "out"), "--threads", "1"),
            *(
                "--page",
                str(folder / "page" / "benchmarks.md"),
                "--measured",
                str(folder / "measured"),
            ),
            *("--baseline", *baselines),
            *map(str, options),
        ]
    )


@pytest.fixture
def blank_figures(monkeypatch):
    """Drawing takes longer than all the rest."""
    monkeypatch.setattr(benchmark_figures, "critical_difference", lambda *_: "<svg/>")
    monkeypatch.setattr(benchmark_figures, "differences", lambda *_: "<svg/>")


def page(folder):
    return (folder / "page" / "benchmarks.md").read_text()


def section(text, heading):
    """From a heading to the next of its kind."""
    assert heading in text, heading
    return text.split(heading, 1)[1].split(f"\n{heading.split()[0]} ", 1)[0]


class TestPage:
    def test_it_says_how_it_was_made(self, made):
        text = page(made)
        assert "python -m experiments.results.run --tables" in text
        assert text.count("\ntabicl-linear evaluate --benchmark folder:") == 10
        commit = r"commit ([0-9a-f]{12}(-dirty)?|unknown), \d{4}-\d\d-\d\d, "
        assert re.search(rf"\n- {commit}.+: `cc18-default-", text)
        assert re.search(r"`default` \(SHA-256 [0-9a-f]{12} trees='auto'\)", text)
        assert re.search(r"`network` \(SHA-256 [0-9a-f]{12} trees=False\)", text)
        assert "`logistic_regression` (sklearn " in text
        ridge = rf"`random_feature_ridge` \(tabicl_linear {__version__}, options [0-9a-f]{{8}}\)"
        assert re.search(ridge, text)
        assert "> Nothing is missing" in text
        assert "## Missing" not in text

    def test_means_say_of_how_many_tables_they_are(self, made):
        means = section(page(made), "## Means")
        assert "OpenML-CC18\\* (2 of 30 tables) ROC-AUC" in means
        assert "TabArena\\* (1 of 38 tables) ROC-AUC" in means
        for model in (DEFAULT, "network", "demo", *BASELINES):
            assert f"\n| {model} |" in means
        assert "On OpenML-CC18\\* the paper has 30 tables and we 2: these means do not" in means
        assert "On TabArena\\* the paper has 38 tables and we 1: these means do not" in means

    def test_means_are_those_of_the_results(self, made):
        frame = pd.concat(pd.read_csv(x) for x in (made / "out").glob("cc18*/results.csv"))
        means = frame[frame["metric"] == "log_loss"].groupby(["model", "dataset"])["value"].mean()
        chapter = section(page(made), "## OpenML-CC18* (2 of 30 tables)\n")
        header, _, *rows = [x for x in chapter.splitlines() if x.startswith("|")][:6]
        column = header.split(" | ").index("log-loss ↓")
        assert header.endswith(
            "ECE ↓ | rank (ROC-AUC) | s per fold | fit | predict | fit, CPU | predict, CPU |"
        )
        for row in rows:
            model = row.split(" | ")[0].strip("| ")
            shown = re.search(r"0\.\d{4}|[1-9]\.\d{4}", row.split(" | ")[column])[0]
            assert float(shown) == pytest.approx(means[model].mean(), abs=5.1e-5)

    def test_figures_lie_beside_it(self, made):
        shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page(made))
        assert len(shown) == 8  # two of two metrics on two benchmarks
        there = {path.name for path in (made / "page").glob("*.svg")}
        assert set(shown) == there
        assert all((made / "page" / name).read_text().startswith("<?xml") for name in shown)

    def test_numbers_lie_beside_it(self, made):
        frame = pd.concat(pd.read_csv(x) for x in (made / "out").glob("*/results.csv"))
        key = ["benchmark", "dataset", "model"]
        wanted = frame.pivot_table(index=key, columns="metric", values="value", aggfunc="mean")
        outcome = pd.read_csv(made / "page" / "scores.csv").set_index(key).sort_index()
        assert list(outcome) == ["roc_auc", "accuracy", "log_loss", "ece"]
        pd.testing.assert_frame_equal(outcome, wanted[list(outcome)], check_names=False)
        pairs = pd.read_csv(made / "page" / "pairs.csv")
        assert len(pairs) == 2 * 4 * 10  # benchmarks, metrics, pairs of five models
        assert "[scores.csv](scores.csv)" in page(made)
        assert "[pairs.csv](pairs.csv)" in page(made)

    def test_the_paper_stands_beside_ours(self, made):
        assert "| CatBoost | 0.8833 |" in section(page(made), "## Beside the paper")

    def test_the_weak_tables_are_named(self, made):
        text = section(page(made), "## What the weak tables of `default`")
        assert "OpenML-CC18* (2 of 30 tables) and TabArena* (1 of 38 tables)" in text
        assert {"| two |", "| three |", "| else |"} <= set(re.findall(r"\| \w+ \|", text))
        assert "too few, or too alike" in text


@pytest.mark.usefixtures("blank_figures")
class TestGoingOn:
    def test_nothing_is_scored_twice(self, made, tables, weights, monkeypatch, tmp_path):
        shutil.copytree(made / "measured", tmp_path / "measured")
        monkeypatch.setitem(WEIGHTS, DEFAULT, weights[0])
        assert call(tables, tmp_path, "--demo", weights[1]) == 0
        assert not (tmp_path / "out").exists()  # what is kept is enough
        assert "not scored whole yet" not in page(tmp_path)
        assert {
            path.name for path in (tmp_path / "measured" / "cc18-logistic_regression").iterdir()
        } == {*("results.csv", "evaluation.json", "machine.json")}

    def test_new_default_weights_are_scored_beside_the_old_baselines(
        self, made, tables, weights, monkeypatch, tmp_path
    ):
        shutil.copytree(made, tmp_path, dirs_exist_ok=True)
        monkeypatch.setitem(WEIGHTS, DEFAULT, weights[2])
        assert call(tables, tmp_path) == 0
        assert len(list((tmp_path / "out").glob("*/trials/*.json"))) == 3 * 7 * FOLDS
        old, new = (re.search(r"`default` \(SHA-256 (\w+) ", page(x))[1] for x in (made, tmp_path))
        assert old != new
        assert "\n| demo |" not in page(tmp_path)

    def test_new_options_of_a_baseline_are_scored_beside_the_rest(
        self, made, tables, weights, monkeypatch, tmp_path
    ):
        shutil.copytree(made, tmp_path, dirs_exist_ok=True)
        monkeypatch.setitem(WEIGHTS, DEFAULT, weights[0])
        options = replace(random_feature_ridge.OPTIONS, num_trees=2)
        monkeypatch.setattr(random_feature_ridge, "OPTIONS", options)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/trials/*.json")}
        assert call(tables, tmp_path, "--demo", weights[1]) == 0
        after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/trials/*.json")}
        assert before.items() <= after.items()
        assert {path.name.split("--")[0] for path in after.keys() - before} == {BASELINES[1]}
        assert len(after.keys() - before) == 3 * FOLDS
        old, new = (re.search(r"options (\w{8})\)", page(x))[1] for x in (made, tmp_path))
        assert old != new


@pytest.mark.usefixtures("blank_figures")
class TestUnfinished:
    def test_what_was_not_begun_is_said(self, made, tables, weights, monkeypatch, tmp_path):
        for folder in (made / "out").glob("cc18*"):
            if not any(model in folder.name for model in (DEFAULT, "network", "demo")):
                shutil.copytree(folder, tmp_path / "out" / folder.name)
        monkeypatch.setitem(WEIGHTS, DEFAULT, weights[0])
        assert call(tables, tmp_path, "--page-only", baselines=[*BASELINES, "catboost"]) == 0
        text = page(tmp_path)
        assert "> openml-cc18: not scored yet: default, network, catboost." in text
        missing = ", ".join([DEFAULT, "network", *BASELINES, "catboost"])
        assert f"> tabarena: not scored yet: {missing}." in text
        assert "> Nothing is missing" not in text
        assert "- not scored whole yet: `cc18-logistic_regression`" in text
        assert "Not known yet: no table has scores of `default`" in text

    def test_a_fold_that_is_missing_is_listed(self, made, tables, weights, monkeypatch, tmp_path):
        shutil.copytree(made, tmp_path, dirs_exist_ok=True)
        path = tmp_path / "measured" / "cc18-logistic_regression" / "results.csv"
        frame = pd.read_csv(path)
        gone = (frame["dataset"] == "two") & (frame["fold"] == 1)
        frame[~gone].to_csv(path, index=False)
        monkeypatch.setitem(WEIGHTS, DEFAULT, weights[0])
        assert call(tables, tmp_path, "--demo", weights[1], "--page-only") == 0
        assert "over the 1 of 2 tables that all models have" in page(tmp_path)
        missing = section(page(tmp_path), "## Missing")
        row = f"| {BASELINES[0]} | two | {FOLDS - 1} of {FOLDS} | not scored yet |"
        assert f"| openml-cc18 {row}" in missing

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--page-only"], "holds no results yet; run without --page-only"),
            (["--demo", "nowhere.ckpt"], r"no file of weights nowhere\.ckpt"),
            (["--baseline", "oracle"], "--baseline oracle: give one of"),
        ],
    )
    def test_bad_input_is_one_line(self, tables, tmp_path, capsys, options, message):
        assert call(tables, tmp_path, *options) == 2
        assert re.search(message, capsys.readouterr().err.strip())
        assert not list(tmp_path.iterdir())  # before anything is scored


def known_gaps(gaps, **properties):
    """Gaps of tables; what is not given of their properties is the same for all."""
    frame = pd.DataFrame(
        dict.fromkeys(weak.PROPERTIES, 1.0) | properties, index=[f"t{i}" for i in range(len(gaps))]
    )
    known = {"gap": gaps, "model": 0.5, "best": 0.5, "baseline": "catboost"}
    return frame.assign(**known).sort_values("gap")


class TestWeak:
    def test_gaps_are_to_the_best_baseline_of_each_table(self, made, tables):
        frames = [pd.read_csv(x) for x in sorted((made / "out").glob("*/results.csv"))]
        scores = pd.concat(frames)
        scores = scores[scores["metric"] == "roc_auc"]
        wide = scores.pivot_table(index="dataset", columns="model", values="value", aggfunc="mean")
        wanted = wide[DEFAULT] - wide[BASELINES].max(axis="columns")
        text = section(page(made), "## What the weak tables of `default`")
        rows = [x.split(" | ") for x in text.splitlines() if re.match(r"\| (two|three|else) ", x)]
        assert [float(x[4]) for x in rows] == sorted(float(x[4]) for x in rows)
        for row in rows:
            assert float(row[4]) == pytest.approx(wanted[row[0].strip("| ")], abs=5.1e-4)

    def test_properties_are_those_of_the_table_as_evaluated(self, tables):
        benchmark = folder_benchmark(tables, "openml-cc18-30")
        outcome = weak.properties(benchmark, ["two"])
        assert list(outcome.index) == ["two"]
        assert outcome.loc["two", "categorical"] == 0.5
        assert outcome.loc["two", "missing"] == pytest.approx(2 / 240)
        assert outcome.loc["two", "majority"] == 0.5

    def test_correlations_are_ranks_and_corrected(self):
        rng = np.random.default_rng(0)
        gaps = known_gaps(rng.normal(size=12), rows=rng.normal(size=12), classes=np.arange(12))
        outcome = weak.correlations(gaps)
        assert list(outcome.index) == ["rows", "classes"]  # the others do not differ
        wanted = [stats.spearmanr(gaps[name], gaps["gap"]) for name in outcome.index]
        np.testing.assert_allclose(outcome["rho"], [x.statistic for x in wanted])
        np.testing.assert_allclose(outcome["adjusted"], holm([x.pvalue for x in wanted]))

    def test_a_clear_relation_is_said_with_its_direction(self):
        gaps = -np.arange(10) / 100
        frame = known_gaps(gaps, classes=np.arange(10), rows=np.roll(np.arange(10), 5))
        said = " ".join(weak.findings(frame, weak.correlations(frame), "mine"))
        assert "`mine` is behind the best baseline on 9 of 10 tables" in said
        assert "further behind on tables with more classes (correlation -1.00" in said
        assert "the best baseline is catboost (5)" in said
        assert said.endswith("No relation beyond chance: rows.")
        frame = known_gaps(-gaps, classes=np.arange(10))
        said = " ".join(weak.findings(frame, weak.correlations(frame), "mine"))
        assert "further ahead of, the best on tables with more classes" in said

    def test_without_a_clear_relation_none_is_claimed(self):
        gaps = -np.arange(8) / 100
        frame = known_gaps(gaps, rows=[3, 1, 4, 1, 5, 9, 2, 6])
        outcome = weak.correlations(frame)
        assert outcome["adjusted"].item() > 0.05
        said = " ".join(weak.findings(frame, outcome, "mine"))
        assert "No property is related to the gap beyond chance" in said
        assert "the closest is rows" in said

    def test_what_is_rounded_to_zero_has_no_sign(self):
        gaps = known_gaps([-0.01, -0.00001, 0.01])
        said = " ".join(weak.findings(gaps, weak.correlations(gaps), "mine"))
        assert "the median gap is 0.0000 (quartiles -0.0050 and +0.0050)" in said

    def test_few_tables_have_no_correlations(self):
        frame = known_gaps([-0.1, 0.0, 0.1], rows=[1, 2, 3])
        assert weak.correlations(frame).empty

"""The development protocol: splits, scores, what is kept, and comparisons table by table."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import small_tables
import tiny_model
from few_trees import NUMBERS
from numpy.testing import assert_equal
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.metrics import roc_auc_score

from experiments.development import run as development
from experiments.development.baselines import BASELINES
from experiments.development.comparison import by_table, difference, markdown
from experiments.development.results import Candidate, Results
from experiments.development.scoring import METRICS, development_mean, score
from experiments.development.tables import LARGE, VARIABLE, Table, load_tables
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator import random_feature_ridge
from tabicl_linear.shipped import checkpoint_path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    return small_tables.write(tmp_path / "tables")


class Counting(ClassifierMixin, BaseEstimator):
    """Predicts the shares of the classes, and counts its fits over all clones."""

    fits = 0

    def fit(self, x, y):
        type(self).fits += 1
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / len(y)
        return self

    def predict_proba(self, x):
        return np.tile(self.shares_, (len(x), 1))


class Scripted(ClassifierMixin, BaseEstimator):
    """Gives the same random probabilities whatever it sees, for the classes of the context."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        rng = np.random.default_rng(7)
        return rng.integers(1, 4, (len(x), len(self.classes_))).astype(float)


def table_of(y):
    x = pd.DataFrame({"x": np.arange(len(y), dtype=float)})
    return Table("made", x, np.asarray(y, dtype=object), checksum="0")


class TestTables:
    def test_the_folder_comes_from_the_environment_or_the_caller(self, folder, monkeypatch):
        with pytest.raises(ConfigError, match=f"set {VARIABLE}"):
            load_tables()
        monkeypatch.setenv(VARIABLE, str(folder))
        first, second = load_tables()
        assert (first.name, second.name) == ("two", "three")
        assert list(first.x) == ["number", "text"]
        assert first.x.isna().sum().sum() == 2
        assert set(second.y) == {"no", "yes", "maybe"}
        assert [table.name for table in load_tables(folder, ["three"])] == ["three"]

    def test_what_cannot_be_read_is_named(self, folder, tmp_path):
        with pytest.raises(DataError, match=r"index\.csv cannot be read"):
            load_tables(tmp_path / "nowhere")
        with pytest.raises(ConfigError, match="no tables four"):
            load_tables(folder, ["two", "four"])
        (folder / "two.parquet").write_bytes(b"nothing")
        with pytest.raises(DataError, match="table two"):
            load_tables(folder)
        (folder / "index.csv").write_text("name,file\n")
        with pytest.raises(DataError, match="lacks the columns target_column"):
            load_tables(folder)

    @pytest.mark.parametrize(
        ("rows", "context", "queries"),
        [(61, 30, 30), (1600, 800, 800), (1601, 800, 801), (2310, 800, 1510), (3000, 800, 2000)],
    )
    def test_sizes_and_disjointness_of_the_splits(self, rows, context, queries):
        table = table_of(np.arange(rows) % 2)
        splits = table.splits()
        assert [(len(c), len(q)) for c, q in splits] == [(context, queries)] * 2
        assert all(not set(c) & set(q) for c, q in splits)
        assert set(splits[0][0]) != set(splits[1][0])
        again = table.splits()
        assert all(np.array_equal(a[0], b[0]) for a, b in zip(splits, again, strict=True))

    def test_classes_too_rare_to_be_divided_are_an_error_that_names_the_table(self):
        """A traceback of scikit-learn named neither the table nor what to do."""
        table = replace(table_of(np.arange(60) // 59), name="rare")
        with pytest.raises(DataError, match=r"table rare has .* 1 member.* \(--without\)"):
            table.splits()

    @pytest.mark.parametrize(
        ("rows", "context", "queries"), [(61, 40, 21), (7500, 5000, 2500), (9000, 5000, 3000)]
    )
    def test_larger_tables_have_sizes_of_their_own(self, rows, context, queries):
        table = replace(table_of(np.arange(rows) % 2), protocol=LARGE)
        assert [(len(c), len(q)) for c, q in table.splits()] == [(context, queries)] * 2


class TestScore:
    def naive(self, table, split):
        """Area by counting pairs; everything by loops."""
        context, queries = split
        classes = sorted(set(table.y[context]))
        scripted = Scripted().fit(None, table.y[context]).predict_proba(queries)
        rows = [
            (label, dict(zip(classes, p / p.sum(), strict=True)))
            for label, p in zip(table.y[queries], scripted, strict=True)
            if label in classes
        ]
        areas = []
        for name in classes if len(classes) > 2 else classes[1:]:
            inside = [p[name] for label, p in rows if label == name]
            outside = [p[name] for label, p in rows if label != name]
            pairs = [(a > b) + 0.5 * (a == b) for a, b in itertools.product(inside, outside)]
            if inside:
                areas.append((np.mean(pairs), len(inside)))
        auc = sum(area * count for area, count in areas) / sum(count for _, count in areas)
        accuracy = np.mean([max(p, key=p.get) == label for label, p in rows])
        return auc, accuracy, -np.mean([np.log(p[label]) for label, p in rows])

    @pytest.mark.parametrize("classes", [2, 3, 5])
    def test_against_counting_pairs(self, classes):
        table = table_of([f"c{i * i % classes}" for i in range(80)])
        split = (np.arange(40), np.arange(40, 80))
        result = score(Scripted(), table, split)
        np.testing.assert_allclose(result[:3], self.naive(table, split), rtol=1e-12)

    @pytest.mark.parametrize("kept", [2, 3])
    def test_queries_of_classes_that_the_context_lacks_are_left_out(self, kept):
        table = table_of([f"c{i % kept}" for i in range(40)] + [f"c{i % 5}" for i in range(40)])
        split = (np.arange(40), np.arange(40, 80))
        result = score(Scripted(), table, split)
        np.testing.assert_allclose(result[:3], self.naive(table, split), rtol=1e-12)

    def test_a_context_class_without_queries_has_no_area(self):
        table = table_of([f"c{i % 4}" for i in range(40)] + [f"c{i % 3}" for i in range(40)])
        split = (np.arange(40), np.arange(40, 80))
        np.testing.assert_allclose(
            score(Scripted(), table, split)[:3], self.naive(table, split), rtol=1e-12
        )

    def test_areas_of_classes_count_alike_in_larger_tables(self):
        table = table_of([f"c{i % 3 * (i % 2)}" for i in range(80)])
        split = (np.arange(40), np.arange(40, 80))
        result = score(Scripted(), replace(table, protocol=LARGE), split).roc_auc
        rows = Scripted().fit(None, table.y[:40]).predict_proba(split[1])
        rows /= rows.sum(1, keepdims=True)
        areas = [
            roc_auc_score(table.y[40:] == name, rows[:, place])
            for place, name in enumerate(np.unique(table.y))
        ]
        np.testing.assert_allclose(result, np.mean(areas), rtol=1e-12)
        assert result != score(Scripted(), table, split).roc_auc

    def test_the_estimator_itself_stays_unfitted(self, folder):
        table = load_tables(folder)[0]
        estimator = DummyClassifier()
        assert score(estimator, table, table.splits()[0]).roc_auc == 0.5
        assert not vars(estimator).keys() & {"classes_"}

    @pytest.mark.parametrize("name", list(BASELINES))
    def test_baselines_take_raw_frames(self, folder, name):
        for table in load_tables(folder):
            estimator = BASELINES[name]()
            if name in NUMBERS:
                estimator.set_params(**{NUMBERS[name]: 50})  # of 100 to 500
            scores = score(estimator, table, table.splits()[0])
            assert scores.roc_auc > 0.6 or name == "hist_gradient_boosting"  # 30 rows: one leaf
            assert scores.fit_seconds > 0


class TestResults:
    def test_nothing_is_computed_twice_and_a_stopped_run_goes_on(self, folder, tmp_path):
        tables = load_tables(folder)
        results = Results(tmp_path / "results.csv")
        Counting.fits = 0
        first = results.complete([Candidate("a", "1", Counting())], tables[:1])
        assert Counting.fits == len(first) == 2
        both = [Candidate("b", "1", Counting()), Candidate("c", "2", Counting())]
        result = results.complete(both, tables)
        assert Counting.fits == 8
        assert list(result["model"].unique()) == ["b", "c"]
        again = result[(result["table"] == "two") & (result["model"] == "b")]
        assert again["log_loss"].tolist() == first["log_loss"].tolist()
        assert results.complete(both, tables).equals(result)
        assert Counting.fits == 8

    def test_a_changed_table_is_scored_anew(self, folder, tmp_path):
        results = Results(tmp_path / "results.csv")
        Counting.fits = 0
        results.complete([Candidate("a", "1", Counting())], load_tables(folder))
        frame = pd.read_parquet(folder / "two.parquet")
        frame.iloc[:-2].to_parquet(folder / "two.parquet")
        results.complete([Candidate("a", "1", Counting())], load_tables(folder))
        assert Counting.fits == 4 + 2


class TestComparison:
    @pytest.fixture
    def scores(self):
        rng = np.random.default_rng(1)
        rows = [
            {"model": model, "protocol": "small", "table": f"t{t}", "split": split}
            | {name: rng.random() for name in (*METRICS, "fit_seconds", "predict_seconds")}
            for t in range(6)
            for split in range(2)
            for model in ("a", "b")
        ]
        return pd.DataFrame(rows)

    @pytest.mark.parametrize("metric", METRICS)
    def test_paired_interval_over_tables(self, scores, metric):
        means = scores.groupby(["model", "table"])[metric].mean()
        test = stats.ttest_rel(means["b"], means["a"])
        interval = test.confidence_interval(0.95)
        result = difference(by_table(scores), metric, "b", "a")
        low, high = result.mean - result.half_width, result.mean + result.half_width
        np.testing.assert_allclose((low, high), (interval.low, interval.high), rtol=1e-12)
        larger = int((means["b"] > means["a"]).sum())
        expected = (6 - larger, larger) if metric == "log_loss" else (larger, 6 - larger)
        assert (result.wins, result.losses) == expected
        assert result.p == stats.wilcoxon(means["a"], means["b"]).pvalue

    def test_a_single_table_has_no_interval_and_ties_count_for_nobody(self, scores):
        one = scores[scores["table"] == "t0"]
        result = difference(by_table(one), "accuracy", "a", "a")
        assert np.isnan(result.half_width)
        assert (result.mean, result.wins, result.losses, result.p) == (0, 0, 0, 1)

    def test_markdown_names_every_model_and_the_reference(self, scores):
        text = markdown(scores, "b")
        assert "Minus b" in text
        assert text.count("| a |") == 2
        assert text.count("| b |") == 1
        mean = scores[scores["model"] == "a"]["roc_auc"].mean()
        assert f"| a | {mean:.4f} |" in text


class TestCommand:
    def test_model_baseline_files_and_the_mean_that_others_call(self, folder, tmp_path, capsys):
        path = tiny_model.save(tiny_model.untrained(), tmp_path / "tiny.ckpt")
        output = tmp_path / "out"
        options = ["--model", f"tiny={path}", "--baseline", "logistic_regression"]
        options += ["--tables", str(folder), "--output", str(output)]
        assert development.main(options) == 0
        printed = capsys.readouterr().out
        assert "Minus tiny" in printed
        assert (output / "summary.md").read_text().strip() in printed
        wide = pd.read_csv(output / "tables.csv", index_col="table")
        means = development_mean(path, load_tables(folder))
        assert wide["tiny roc_auc"].mean() == pytest.approx(means.roc_auc, abs=1e-6)
        assert wide["tiny log_loss"].mean() == pytest.approx(means.log_loss, abs=1e-6)
        # The same weights under another name are not scored again; other weights are.
        rows = len(pd.read_csv(output / "results.csv"))
        options[1] = f"renamed={path}"
        assert development.main([*options, "--against", "logistic_regression"]) == 0
        assert "Minus logistic_regression" in capsys.readouterr().out
        assert len(pd.read_csv(output / "results.csv")) == rows
        other = tiny_model.save(tiny_model.untrained(seed=1), path)
        assert development.main([*options[:1], f"renamed={other}", *options[2:]]) == 0
        assert len(pd.read_csv(output / "results.csv")) == rows + 4

    def test_a_file_that_is_no_checkpoint_is_one_line(self, folder, tmp_path, capsys):
        (tmp_path / "none.ckpt").write_text("no checkpoint")
        options = ["--model", f"none={tmp_path / 'none.ckpt'}", "--tables", str(folder)]
        assert development.main([*options, "--output", str(tmp_path / "out")]) == 2
        assert "none.ckpt cannot be read as a checkpoint" in capsys.readouterr().err

    def test_two_folders_are_compared_apart_and_together(self, folder, tmp_path, capsys):
        large = small_tables.write(tmp_path / "large")
        options = ["--baseline", "logistic_regression", "--output", str(tmp_path / "out")]
        options += ["--tables", str(folder), "--large", str(large)]
        assert development.main(options) == 2
        assert "three, two are in both folders" in capsys.readouterr().err
        index = pd.read_csv(large / "index.csv")
        index.assign(name="large_" + index["name"]).to_csv(large / "index.csv", index=False)
        assert development.main([*options, "--only", "two", "large_two"]) == 0
        printed = capsys.readouterr().out
        for title in ("1 tables (small)", "1 tables (large)", "2 tables (small and large)"):
            assert title in printed
        assert development.main([*options, "--only", "four"]) == 2
        assert "--only four: there are two, three, large_two" in capsys.readouterr().err
        assert development.main([*options, "--without", "three", "large_three"]) == 0
        assert "2 tables (small and large)" in capsys.readouterr().out
        assert development.main([*options, "--context-rows", "20"]) == 0
        assert "2 tables (small, 20 context rows)" in capsys.readouterr().out
        assert development.main([*options, "--context-rows", "1"]) == 2
        assert "--context-rows 1: give at least 2" in capsys.readouterr().err
        assert development.main([*options, "--without", "four"]) == 2
        assert "--without four: there are two, three, large_" in capsys.readouterr().err

    def test_a_baseline_with_other_options_is_scored_again(self, folder, tmp_path, monkeypatch):
        output = tmp_path / "out"
        options = ["--baseline", "random_feature_ridge", "logistic_regression"]
        options += ["--tables", str(folder), "--only", "two", "--output", str(output)]
        assert development.main(options) == 0
        first = pd.read_csv(output / "results.csv")
        assert len(first) == 4
        changed = replace(random_feature_ridge.OPTIONS, num_trees=2)
        monkeypatch.setattr(random_feature_ridge, "OPTIONS", changed)
        assert development.main(options) == 0
        added = pd.read_csv(output / "results.csv")[4:]
        assert added["identity"].str.match(r"random_feature_ridge 0.*, options \w{8}$").all()
        assert len(added) == 2
        assert not set(added["identity"]) & set(first["identity"])

    def test_shipped_weights_have_their_trees_by_name_and_none_by_path(self):
        by_name = development.model_candidate("default")
        by_path = development.model_candidate(f"network={checkpoint_path('default')}")
        x, y = make_classification(200, random_state=0)
        default, named, network = (
            estimator.fit(x[:100], y[:100]).predict_proba(x[100:])
            for estimator in (TabICLLinearClassifier(), by_name.estimator, by_path.estimator)
        )
        assert_equal(named, default)
        assert not np.allclose(named, network)
        assert by_name.identity != by_path.identity

    def test_arguments_reach_one_of_the_classifiers(self, folder, tmp_path):
        path = tiny_model.save(tiny_model.untrained(), tmp_path / "tiny.ckpt")
        output = tmp_path / "out"
        options = ["--model", f"tiny={path}", "--model", f"one={path}"]
        options += ["--arguments", "one", "n_estimators=1", "ensemble=paper"]
        options += ["--tables", str(folder), "--only", "two", "--output", str(output)]
        assert development.main(options) == 0
        wide = pd.read_csv(output / "tables.csv", index_col="table")
        table = load_tables(folder, ["two"])[0]
        one = TabICLLinearClassifier(path, n_estimators=1, ensemble="paper")
        expected = [score(one, table, split).log_loss for split in table.splits()]
        assert wide["one log_loss"].item() == pytest.approx(np.mean(expected), abs=1e-6)
        assert wide["one log_loss"].item() != wide["tiny log_loss"].item()
        assert pd.read_csv(output / "results.csv")["identity"].nunique() == 2

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ([], "at least one"),
            (["--model", "default", "--arguments", "b", "refine=true"], "--arguments b"),
            (["--model", "default", "--arguments", "default", "x=1"], "default x=1: give NAME="),
            (["--model", "default", "--arguments", "default", "refine"], "refine: give NAME="),
            (["--model", "x.ckpt"], "NAME=PATH"),
            (["--model", "x=nowhere.ckpt"], "no file nowhere.ckpt"),
            (["--model", "default", "--model", "default"], "another name"),
            (["--model", "default", "--against", "b"], "--against b"),
            (["--model", "default"], VARIABLE),
        ],
    )
    def test_bad_input_is_one_line(self, folder, capsys, options, message):
        assert development.main(options) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1

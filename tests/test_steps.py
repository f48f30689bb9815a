"""The steps of the classifier: what each adds, what is not computed twice, and the table."""

import numpy as np
import pandas as pd
import pytest
import small_tables
import tiny_model

from experiments.development.run import model_candidate
from experiments.development.tables import Table, load_tables
from experiments.steps import run as steps
from experiments.steps.classifiers import (
    CATEGORIES,
    CLASSES,
    MISSING,
    RATES,
    RELEVANCE,
    STEPS,
    PartialClassifier,
    PartialPreprocessor,
    Refused,
)
from tabicl_linear import TabICLLinearClassifier, load_model
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor

ALL = frozenset({CATEGORIES, MISSING, RATES, RELEVANCE, CLASSES})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return tiny_model.save(tiny_model.untrained(), folder / "tiny.ckpt")


def table(rows=300, seed=0):
    """Numbers and categories with gaps, a flag or nothing, and a column of many categories."""
    rng = np.random.default_rng(seed)
    many = rng.integers(0, 30, rows)
    y = np.where(rng.random(rows) < 0.8, many % 2, rng.integers(0, 2, rows))
    frame = pd.DataFrame({"number": y + rng.normal(size=rows)})
    frame["colour"] = np.array(["red", "green", None], dtype=object)[rng.integers(0, 3, rows)]
    frame["flag"] = np.array(["T", None], dtype=object)[rng.integers(0, 2, rows)]
    frame["many"] = np.char.add("m", many.astype(str))
    frame.loc[rng.random(rows) < 0.2, "number"] = np.nan
    return frame, y


def encoded(*parts, width=40):
    frame, y = table()
    preprocessor = PartialPreprocessor(frozenset(parts), width)
    return preprocessor.fit_transform(frame, y), preprocessor


class TestParts:
    def test_nothing_is_numbers_codes_and_gaps(self):
        matrix, preprocessor = encoded()
        frame, _ = table()
        assert [column.name for column in preprocessor.used] == ["number", "colour", "many"]
        assert not preprocessor.categorical.any()
        assert np.array_equal(np.isnan(matrix[:, 0]), frame["number"].isna())
        colours = frame["colour"].map({"green": 0.0, "red": 1.0}).to_numpy(np.float64)
        np.testing.assert_array_equal(matrix[:, 1], colours.astype(np.float32))

    def test_categories_are_told_apart(self):
        plain, _ = encoded()
        matrix, preprocessor = encoded(CATEGORIES)
        np.testing.assert_array_equal(matrix, plain)
        assert preprocessor.categorical.tolist() == [False, True, True]

    def test_missing_is_a_category_or_a_column(self):
        matrix, preprocessor = encoded(CATEGORIES, MISSING)
        names = [column.name for column in preprocessor.used]
        assert names == ["number", "number", "colour", "flag", "many"]
        assert np.isnan(matrix).any(axis=0).tolist() == [True, False, False, False, False]
        assert preprocessor.categorical.tolist() == [False, True, True, True, True]

    def test_rates_come_beside_many_categories(self):
        without, _ = encoded(CATEGORIES, MISSING)
        matrix, preprocessor = encoded(CATEGORIES, MISSING, RATES)
        assert [column.name for column in preprocessor.used][-2:] == ["many", "many"]
        np.testing.assert_array_equal(matrix[:, :-1], without)
        assert not preprocessor.categorical[-1]

    def test_without_relevance_the_first_columns_are_seen(self):
        matrix, preprocessor = encoded(CATEGORIES, width=2)
        assert [column.name for column in preprocessor.used] == ["number", "colour"]
        assert matrix.shape[1] == len(preprocessor.categorical) == 2
        assert encoded(CATEGORIES, RELEVANCE, width=2)[0].shape[1] == 3

    def test_all_parts_are_the_classifier(self, path):
        frame, y = table()
        matrix, preprocessor = encoded(*ALL)
        whole = TablePreprocessor()
        np.testing.assert_array_equal(matrix, whole.fit_transform(frame, y))
        np.testing.assert_array_equal(preprocessor.categorical, whole.categorical)
        arguments = {"model": path, "n_estimators": 2}
        result = PartialClassifier(ALL, arguments).fit(frame, y).predict_proba(frame)
        expected = TabICLLinearClassifier(**arguments).fit(frame, y).predict_proba(frame)
        np.testing.assert_array_equal(result, expected)
        other = PartialClassifier(ALL - {MISSING}, arguments).fit(frame, y)
        assert np.abs(other.predict_proba(frame) - expected).max() > 0

    def test_columns_of_one_value_or_nothing_are_refused_where_they_are_all(self):
        frame, y = table()
        with pytest.raises(Refused, match="two values besides missing"):
            PartialPreprocessor(frozenset(), 40).fit(frame[["flag"]], y)
        PartialPreprocessor(frozenset({MISSING}), 40).fit(frame[["flag"]], y)

    def test_the_steps_add_all_parts(self):
        assert {step.part for step in STEPS if step.part} == ALL


class TestCandidates:
    def identities(self, path, frame, y):
        table = Table("made", frame, np.asarray(y, dtype=object), checksum="0")
        base = model_candidate(f"tiny={path}")
        return [c.identity for c in steps.candidates(base, load_model(base.estimator.model), table)]

    def test_steps_that_the_table_does_not_show_have_one_identity(self, path):
        frame, y = table()
        names = np.array(["no", "yes"])[y]
        result = self.identities(path, frame, names)
        assert len(set(result)) == 6
        assert len(set(result[3:7])) == 1  # few columns, classes and rows
        numbers = self.identities(path, frame[["number"]].fillna(0), names)
        assert len(set(numbers)) == 3  # temperature and refinement only

    def test_a_table_of_many_classes_is_refused_at_first(self, path):
        frame, _ = table()
        result = self.identities(path, frame, [f"c{i % 11:02}" for i in range(len(frame))])
        assert result[:5] == ["refused"] * 5
        assert "refused" not in result[5:]

    def test_contexts_longer_than_in_pretraining_are_another_input(self, path, monkeypatch):
        frame, y = table()
        names = np.array(["no", "yes"])[y]
        monkeypatch.setitem(tiny_model.PROVENANCE, "trained_rows", [96, 149])
        longer = tiny_model.save(tiny_model.untrained(), path.with_name("short.ckpt"))
        result = self.identities(longer, frame, names)
        assert result[6] != result[5]
        assert "long_context='auto'" in result[6]

    def test_the_order_of_columns_and_labels_counts(self, path):
        frame, y = table()
        names = np.array(["no", "yes"])[y]
        first = self.identities(path, frame, names)[0]
        assert self.identities(path, frame[frame.columns[::-1]], names)[0] != first
        assert self.identities(path, frame, names)[0] == first


class TestCommand:
    @pytest.fixture
    def options(self, path, tmp_path):
        folder = small_tables.write(tmp_path / "tables")
        options = ["--tables", str(folder), "--output", str(tmp_path / "out")]
        return [*options, "--model", f"tiny={path}", "--arguments", "n_estimators=1"]

    def test_steps_with_baselines_beside_and_nothing_twice(self, options, tmp_path, capsys):
        options += ["--baseline", "logistic_regression"]
        assert steps.main(options) == 0
        printed = capsys.readouterr().out
        rows = [line for line in printed.splitlines() if line.startswith("| ")]
        assert len(rows) == 1 + len(STEPS) + 1
        # One text column with a gap: categories, missing, temperature and refinement act.
        changes = [row.split("|")[6].strip() for row in rows[1:-1]]
        assert changes == [
            "", "2 tables", "2 tables", *["0 tables"] * 4, "2 tables", "2 tables"
        ]  # fmt: skip
        results = pd.read_csv(tmp_path / "out" / "results.csv")
        assert len(results) == 2 * 2 * (5 + 1)
        scores = pd.read_csv(tmp_path / "out" / "scores.csv")
        assert len(scores) == 2 * 2 * (len(STEPS) + 1)
        means = scores.groupby("model")["roc_auc"].mean()
        for row in rows[1:]:
            assert f"{means[row.split('|')[1].strip()]:.4f}" in row
        assert steps.main(options) == 0
        assert capsys.readouterr().out == printed
        assert len(pd.read_csv(tmp_path / "out" / "results.csv")) == len(results)

    def test_the_default_step_is_the_default_classifier(self, options, path, tmp_path):
        assert steps.main([*options, "--baseline", "--only", "two"]) == 0
        scores = pd.read_csv(tmp_path / "out" / "scores.csv")
        (made,) = load_tables(tmp_path / "tables", ["two"])
        context, queries = made.splits()[0]
        classifier = TabICLLinearClassifier(path, n_estimators=1)
        classifier.fit(made.x.iloc[context], made.y[context])
        accuracy = (classifier.predict(made.x.iloc[queries]) == made.y[queries]).mean()
        rows = scores[scores["model"].str.endswith("the default") & (scores["split"] == 0)]
        assert rows["accuracy"].item() == pytest.approx(accuracy, abs=1e-6)

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["--arguments", "refine=true"], "a step sets it"),
            (["--arguments", "parts=1"], "give NAME=VALUE"),
            (["--model", "other"], "NAME=PATH"),
            (["--only", "four"], "no tables four"),
        ],
    )
    def test_bad_input_is_one_line(self, options, capsys, more, message):
        assert steps.main([*options, *more]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1

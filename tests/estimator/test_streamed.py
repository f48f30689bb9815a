"""Tables in pieces and files give the classifier of the whole table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny_model
from estimator.files.test_state_file import FEW, table

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import DataError
from tabicl_linear.estimator import fitting
from tabicl_linear.estimator.learners.chosen_trees import divisions
from tabicl_linear.estimator.members.ensemble import Encoded, fit_ensemble
from tabicl_linear.estimator.rows import pieces as rows_in_pieces
from tabicl_linear.estimator.rows import table_file

KINDS = [TabICLLinearClassifier, RandomFeatureRidge]


def make(kind, checkpoint, **options):
    options = {"n_estimators": 3, "device": "cpu", "rows_per_batch": 32} | options
    return kind(FEW if kind is RandomFeatureRidge else checkpoint, **options)


def cut(x, y, *ends):
    return ((x[i:j], y[i:j]) for i, j in zip((0, *ends), (*ends, len(y)), strict=True))


@pytest.fixture
def small(monkeypatch):
    """Few rows are many."""
    monkeypatch.setattr(rows_in_pieces, "FIRST_ROWS", 40)
    monkeypatch.setattr(table_file, "ROWS_PER_PIECE", 30)


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_in_pieces_are_the_whole(kind, checkpoint):
    x, y = table(90)
    whole = make(kind, checkpoint).fit(x, y)
    pieces = make(kind, checkpoint).fit(cut(x, y, 20, 21))
    np.testing.assert_array_equal(pieces.predict_proba(x), whole.predict_proba(x))
    assert vars(pieces).keys() == vars(whole).keys()
    arrays = make(kind, checkpoint).fit(cut(x[["number", "skewed"]].to_numpy(), y, 20))
    whole = make(kind, checkpoint).fit(x[["number", "skewed"]].to_numpy(), y)
    np.testing.assert_array_equal(
        arrays.predict_proba(x[["number", "skewed"]].to_numpy()),
        whole.predict_proba(x[["number", "skewed"]].to_numpy()),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_are_the_whole_with_the_columns_of_the_first(kind, checkpoint, small):
    """All members, in batches of several (few rows) and alone; power transforms of all rows."""
    x, y = table(90)
    for rows_per_batch in (32, 16384):
        pieces = make(kind, checkpoint, rows_per_batch=rows_per_batch).fit(cut(x, y, 41, 60))
        whole = make(kind, checkpoint, rows_per_batch=rows_per_batch).fit(x[:41], y[:41])
        columns, plan = whole.preprocessor_, whole._plan().drawn()
        matrix = columns.transform(x)
        codes = np.unique(y, return_inverse=True)[1]
        learner = whole._learners().for_table(3, len(y))
        rows = Encoded(matrix, codes, columns, np.arange(3))
        members = fit_ensemble(learner, rows, plan)
        whole.fitted_ = replace(whole.fitted_, members=members.halved())
        np.testing.assert_array_equal(pieces.predict_proba(x), whole.predict_proba(x))
        assert pieces.n_samples_seen_ == 90
        assert pieces.preprocessor_.columns == whole.preprocessor_.columns


def test_rows_after_the_first_count(checkpoint, small):
    """Else the tests above could not fail."""
    x, y = table(90)
    other = y.copy()
    other[60:] = np.roll(y[60:], 1)
    first, second = (
        make(TabICLLinearClassifier, checkpoint).fit(cut(x, labels, 41, 60)).predict_proba(x)
        for labels in (y, other)
    )
    assert np.abs(first - second).max() > 1e-3


def test_a_causal_model_reads_each_piece_once_in_their_order(small):
    x, y = table(90)
    model = tiny_model.untrained(readout="Causal")
    options = {"n_estimators": 2, "device": "cpu"}
    one = TabICLLinearClassifier(model, **options).fit(cut(x, y, 20, 50, 51))
    # Pieces are joined until there are 40 rows.
    two = TabICLLinearClassifier(model, **options)
    for X, labels in cut(x, y, 50, 51):
        two.partial_fit(X, labels)
    np.testing.assert_array_equal(one.predict_proba(x), two.predict_proba(x))
    three = TabICLLinearClassifier(model, **options).partial_fit(x, y)
    three.fit(cut(x, y, 20, 50, 51))  # what was fitted before does not matter
    np.testing.assert_array_equal(one.predict_proba(x), three.predict_proba(x))


@pytest.mark.parametrize("trees", [False, True], ids=["causal", "trees"])
def test_a_class_that_comes_late_in_an_iterator_is_told_what_an_iterator_can(trees, small):
    x, y = table(90)
    late = np.where(y == "yes", "no", y).astype(object)
    late[80] = "late"
    fitted = TabICLLinearClassifier(tiny_model.untrained(readout="Causal"), trees=trees)
    with pytest.raises(
        DataError, match=r"'late'.* iterator the first 50,000 rows name .*let a row"
    ):
        fitted.fit(cut(x, late, 45, 50))


@pytest.mark.parametrize("kind", ["final", "causal", "trees"])
def test_errors_of_later_rows_say_where_they_are(kind, checkpoint, small, monkeypatch):
    """In the training table too, so that "held numbers in the training table" is not all."""
    monkeypatch.setattr(fitting, "FIRST_ROWS", 40)
    monkeypatch.setattr(divisions, "LEAST_GROWING", 20)
    x, y = table(90)
    x["number"] = x["number"].astype(object)
    x.loc[x.index[80], "number"] = "on request"
    model = checkpoint if kind == "final" else tiny_model.untrained(readout="Causal")
    classifier = TabICLLinearClassifier(model, trees=kind == "trees", n_estimators=1)
    with pytest.raises(
        DataError, match=r"Rows \d+ to 90 of the training table, .*'number' .*'on request'"
    ) as raised:
        classifier.fit(cut(x, y, 40, 70))
    assert str(raised.value).startswith(f"Rows {41 if kind == 'trees' else 71} to")
    if kind != "final":  # which knows the classes only after the last row
        with pytest.raises(DataError, match=r"^Rows 1 to 40 of .*: y holds one class only"):
            classifier.fit(cut(x, np.array(["a"] * 40 + ["b"] * 50), 40))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("model", ["final", "causal"])
def test_a_file_is_its_pieces(suffix, model, checkpoint, small, tmp_path):
    x, y = table(90)
    x = x.drop(columns=["void", "when"])
    x["code"] = ["1", "2"] * 30 + ["1", "b"] * 15  # numbers in the first pieces of a CSV file
    labels = pd.Series(np.where(y == "no", "10", np.where(y == "yes", "20", "x"))).to_numpy()
    labels[:60] = np.where(labels[:60] == "x", "20", labels[:60])
    path = tmp_path / f"t{suffix}"
    frame = x.assign(y=labels)
    getattr(frame, f"to_{suffix[1:]}")(path, index=False)
    given = checkpoint if model == "final" else tiny_model.untrained(readout="Causal")
    options = {"n_estimators": 2, "device": "cpu", "categorical_features": ["code"]}
    from_file = TabICLLinearClassifier(given, **options).fit(path, "y")
    assert from_file.classes_.tolist() == ["10", "20", "x"]
    if model == "causal":
        expected = TabICLLinearClassifier(given, **options)
        for X, part in cut(x, labels, 60):
            expected.partial_fit(X, part, classes=["10", "20", "x"])
    else:
        expected = TabICLLinearClassifier(given, **options).fit(cut(x, labels, 60))
    np.testing.assert_allclose(from_file.predict_proba(x), expected.predict_proba(x), atol=1e-7)


def test_labels_of_pieces_are_put_together(checkpoint, small):
    x, _ = table(90)
    y = np.array([*[0, 1] * 30, *[7] * 30])
    fitted = make(TabICLLinearClassifier, checkpoint).fit(cut(x, y, 60))
    assert fitted.classes_.tolist() == [0, 1, 7]
    assert fitted.classes_.dtype == np.int64
    mixed = iter([(x[:60], y[:60]), (x[60:], np.array(["seven"] * 30))])
    with pytest.raises(DataError, match="mixes labels"):
        make(TabICLLinearClassifier, checkpoint).fit(mixed)


def frame_file(tmp_path, **columns):
    path = tmp_path / "t.parquet"
    pd.DataFrame(columns).to_parquet(path)
    return path


@pytest.mark.parametrize(
    ("make_call", "message"),
    [
        (lambda x, y, t: (iter([]),), "no piece"),
        (lambda x, y, t: (iter([x]),), r"gave a DataFrame; it must give pairs \(X, y\)"),
        (lambda x, y, t: (cut(x, y, 50), y), "leave y out"),
        (lambda x, y, t: (iter([(x[:30], y[:30]), (x.to_numpy(), y)]),), "one form"),
        (lambda x, y, t: (cut(x, np.full(90, "a"), 50),), "one class only"),
        (lambda x, y, t: (iter([(x[:60], y[:60]), (x[60:], y[:3])]),), "Piece 2: .*inconsistent"),
        (lambda x, y, t: (iter([(x[:60], y[:60]), (x[["number"]], y)]),), "Piece 2: .* missing"),
        (lambda x, y, t: (t / "none.csv", "y"), "no such file"),
        (lambda x, y, t: (t, "y"), "is a folder"),
        (lambda x, y, t: (frame_file(t, a=[1, 2], y=[0, 1]), None), "name of the column"),
        (
            lambda x, y, t: (frame_file(t, a=[1], y=[0]), pd.Series(y)),
            r"^y=[^\n]{,80}: for a file, give",
        ),
        (lambda x, y, t: (frame_file(t, a=[1, 2], y=[0, 1]), "z"), r"no column 'z'.* a, y"),
        (lambda x, y, t: (frame_file(t, a=[1, 2], y=[0, None]), "y"), "missing in 1 of 2"),
        (lambda x, y, t: (frame_file(t, y=[0, 1]), "y"), "no column besides"),
        (lambda x, y, t: (frame_file(t, a=[], y=[]), "y"), "no rows"),
    ],
)
def test_bad_pieces_leave_the_former_fit(make_call, message, checkpoint, small, tmp_path):
    x, y = table(90)
    classifier = make(TabICLLinearClassifier, checkpoint).fit(x[:50], y[:50])
    before = dict(vars(classifier))
    with pytest.raises(ValueError, match=message):
        classifier.fit(*make_call(x, y, tmp_path))
    assert vars(classifier) == before


@pytest.mark.parametrize("folder", ["none", None])
def test_a_temporary_folder_that_cannot_be_written_is_named(
    folder, checkpoint, small, tmp_path, monkeypatch
):
    """One that a person has named, and where Python finds none."""
    named = None if folder is None else str(tmp_path / folder)
    monkeypatch.setattr("tempfile.tempdir", named)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "void")])
    x, y = table(90)
    said = named or r"\['.*void'\]"
    with pytest.raises(DataError, match=rf"^No temporary file .*{said}.*; set TMPDIR to a folder"):
        make(TabICLLinearClassifier, checkpoint).fit(cut(x, y, 50))


def test_a_temporary_folder_without_room_is_named(checkpoint, small, monkeypatch):
    """Also when the few bytes that wait to be written could not be, as the file is closed."""
    x, y = table(90)
    said = "long table cannot be written after 0 bytes .No space left on device.*TMPDIR"
    with open("/dev/full", "w+b") as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: full)
        with pytest.raises(DataError, match=said):
            make(TabICLLinearClassifier, checkpoint).fit(cut(x, y, 50))


def test_nothing_is_left_in_the_temporary_folder(checkpoint, small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    x, y = table(90)
    make(TabICLLinearClassifier, checkpoint).fit(cut(x, y, 50))
    assert list(tmp_path.iterdir()) == []

"""Trees chosen on the table, as an argument of the classifiers."""

import pickle
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from estimator.learners.chosen_trees.tables import ruled_table

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator import fitting
from tabicl_linear.estimator.columns.counted_rates import CountedRateColumn
from tabicl_linear.estimator.columns.target_rates import RateColumn
from tabicl_linear.estimator.learners.chosen_trees import (
    cross_fitting,
    divisions,
    task_fit,
)
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import ChosenTrees
from tabicl_linear.estimator.learners.chosen_trees.growing import TreeGrowth
from tabicl_linear.estimator.rows import pieces as rows_in_pieces
from tabicl_linear.estimator.rows import table_file
from tabicl_linear.model import InContextModel

pytestmark = pytest.mark.usefixtures("few_trees")


@pytest.fixture(scope="module")
def table():
    rows, labels = ruled_table(240)
    frame = pd.DataFrame(rows, columns=list("abcde"))
    frame.loc[::7, "b"] = np.nan
    frame["f"] = np.where(frame["a"] > 1, "high", "low")
    return frame, np.array(["no", "yes", "perhaps"])[labels]


@pytest.fixture(scope="module")
def fitted(few_trees, table):
    x, y = table
    return TabICLLinearClassifier().fit(x[:160], y[:160])


def test_the_default_takes_trees(fitted, table):
    x, y = table
    assert isinstance(fitted.ensemble_.model, ChosenTrees)
    assert len(fitted.ensemble_.views) == 2
    assert fitted.score(x[160:], y[160:]) > 0.75
    again = TabICLLinearClassifier().fit(x[:160], y[:160])
    np.testing.assert_array_equal(again.predict_proba(x), fitted.predict_proba(x))


@pytest.mark.parametrize("add", ["fit", "partial_fit"])
def test_members_follow_the_rows_unless_they_are_given(add, table, monkeypatch):
    monkeypatch.setattr(divisions, "FEW_ROWS", 90)
    monkeypatch.setattr(divisions, "ROWS_OF_TWO_MEMBERS", 100)
    for rows, arguments, expected in ((100, {}, 2), (101, {}, 1), (101, {"n_estimators": 3}, 3)):
        classifier = getattr(TabICLLinearClassifier(**arguments), add)(*(t[:rows] for t in table))
        assert len(classifier.ensemble_.views) == expected


def test_probabilities_of_members_are_averaged_where_there_are_several(table):
    x, y = table
    for members in (2, 1):
        trees = TabICLLinearClassifier(trees=True, n_estimators=members).fit(x[:160], y[:160])
        logits = trees.predict_proba(x)
        probabilities = trees.set_params(average_logits=False).predict_proba(x)
        assert np.allclose(probabilities, logits, atol=1e-12) == (members == 1)


@pytest.mark.parametrize("make", [TabICLLinearClassifier, RandomFeatureRidge])
def test_files_and_pickles_predict_the_same(make, table, tmp_path):
    x, y = table
    classifier = make(trees=True).fit(x[:160], y[:160])
    expected = classifier.predict_proba(x[160:])
    classifier.save(tmp_path / "a.state")
    loaded = make.load(tmp_path / "a.state")
    np.testing.assert_array_equal(loaded.predict_proba(x[160:]), expected)
    assert loaded.state_nbytes_ == classifier.state_nbytes_
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(x[160:]), expected)


def test_files_of_trees_that_were_divided_more_often_are_read(table, monkeypatch, tmp_path):
    x, y = table
    often = divisions.Scheme(members=1, rounds=4, growths=1)
    for module in (cross_fitting, task_fit):
        monkeypatch.setattr(module, "scheme", lambda num_rows: often)
    classifier = TabICLLinearClassifier().fit(x[:160], y[:160])
    classifier.save(tmp_path / "a.state")
    monkeypatch.undo()
    loaded = TabICLLinearClassifier.load(tmp_path / "a.state")
    assert len(loaded.ensemble_.states[0].thresholds) == 4
    np.testing.assert_array_equal(loaded.predict_proba(x), classifier.predict_proba(x))


def test_rows_are_predicted_apart(fitted, table):
    x, _ = table
    order = np.random.default_rng(0).permutation(80)
    whole = fitted.predict_proba(x[160:])
    np.testing.assert_allclose(fitted.predict_proba(x[160:].iloc[order]), whole[order], atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(x[160:161]), whole[:1], atol=1e-6)


def test_rows_in_pieces_are_those_of_the_table(table, fitted, monkeypatch):
    x, y = table
    pieces = [(x[i : i + 40], y[i : i + 40]) for i in range(0, 160, 40)]
    of_pieces = TabICLLinearClassifier().fit(iter(pieces))
    np.testing.assert_array_equal(of_pieces.predict_proba(x[160:]), fitted.predict_proba(x[160:]))
    monkeypatch.setattr(rows_in_pieces, "FIRST_ROWS", 80)
    spilled = TabICLLinearClassifier().fit(iter(pieces))
    assert isinstance(spilled.ensemble_.model, ChosenTrees)
    assert spilled.score(x[160:], y[160:]) > 0.7


def test_few_rows_are_read_by_the_model(table):
    x, y = table
    few = TabICLLinearClassifier(n_estimators=1).fit(x[:49], y[:49])
    assert isinstance(few.ensemble_.model, InContextModel)
    more = TabICLLinearClassifier().fit(x[:50], y[:50])
    assert isinstance(more.ensemble_.model, ChosenTrees)


@pytest.mark.parametrize(
    "arguments", [{"trees": False}, {"ensemble": "paper"}, {"long_context": "blocks"}]
)
def test_what_asks_for_the_model_gets_it(arguments, table):
    x, y = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = TabICLLinearClassifier(n_estimators=1, **arguments).fit(x[:60], y[:60])
    assert isinstance(classifier.ensemble_.model, InContextModel)


def test_many_classes_are_predicted_at_once():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(15), 20)
    rows = rng.normal(size=(15, 6))[labels] * 2 + rng.normal(size=(300, 6))
    classifier = TabICLLinearClassifier().fit(rows[::2], labels[::2])
    assert isinstance(classifier.ensemble_.model, ChosenTrees)
    assert classifier.score(rows[1::2], labels[1::2]) > 0.6


def test_weights_of_classes_count(fitted, table):
    x, _ = table
    weighted = pickle.loads(pickle.dumps(fitted))
    weighted.set_params(class_weight={"no": 5.0, "yes": 1.0, "perhaps": 1.0})
    plain, moved = (each.predict_proba(x[160:])[:, 0] for each in (fitted, weighted))
    np.testing.assert_allclose(moved, 5 * plain / (1 + 4 * plain), rtol=1e-6)


def test_wide_tables_take_members_until_all_columns_are_seen():
    rows, labels = ruled_table(80)
    wide = np.concatenate([rows, np.random.default_rng(0).normal(size=(80, 20))], axis=1)
    with pytest.warns(UserWarning, match="has 25 usable columns and the model takes 10"):
        classifier = RandomFeatureRidge(max_columns=10).fit(wide, labels)
    assert len(classifier.ensemble_.views) == 3
    assert len({column for view in classifier.ensemble_.views for column in view.columns}) == 25


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trees": "yes"}, "trees='yes': give 'auto', True or False"),
        ({"trees": np.True_, "refine": True}, "trees=True predicts without the model"),
        ({"trees": True, "long_context": "auto"}, "trees=True predicts without the model"),
    ],
)
def test_arguments_that_do_not_suit_are_refused(arguments, message, table):
    x, y = table
    with pytest.raises(ConfigError, match=message):
        TabICLLinearClassifier(**arguments).fit(x, y)


def test_no_rows_can_be_added_to_what_fit_has_chosen(table):
    """It keeps coefficients alone; so does a fit of rows in pieces."""
    x, y = table
    pieces = iter([(x[:100], y[:100]), (x[100:], y[100:])])
    for fitted in (
        TabICLLinearClassifier().fit(x, y),
        TabICLLinearClassifier("streaming", trees=True).fit(pieces),
    ):
        assert isinstance(fitted.ensemble_.model, ChosenTrees)
        assert not hasattr(fitted, "partial_fit")
        with pytest.raises(AttributeError) as error:
            fitted.partial_fit(x, y)
        assert "begin with `partial_fit` on a new classifier" in str(error.value.__cause__)


def test_there_is_no_model_to_look_into(fitted, table):
    with pytest.raises(ConfigError, match="fit with trees=False"):
        fitted.diagnose(*table)


@pytest.fixture
def few_rows_grow(monkeypatch):
    monkeypatch.setattr(divisions, "LEAST_GROWING", 50)


def added(classifier, x, y, *ends):
    for start, end in pairwise((0, *ends, len(y))):
        classifier.partial_fit(x.iloc[start:end], y[start:end], ["no", "perhaps", "yes"])
    return classifier


@pytest.mark.parametrize("arguments", [{}, {"model": "streaming", "trees": True}])
def test_pieces_that_are_added_are_the_whole(arguments, table, few_rows_grow):
    x, y = table
    pieces = added(TabICLLinearClassifier(**arguments), x, y, 60, 90, 91)
    whole = added(TabICLLinearClassifier(**arguments), x, y)
    assert pieces.ensemble_.model.grows
    assert pieces.n_samples_seen_ == 240
    np.testing.assert_allclose(pieces.predict_proba(x), whole.predict_proba(x), atol=1e-5)
    assert whole.score(x, y) > 0.75


def test_rows_that_are_added_are_solved_once_to_predict(
    table, few_rows_grow, monkeypatch, tmp_path
):
    """Which takes seconds, whatever the number of rows added."""
    x, y = table
    solutions = []

    def predictors(growth, sample):
        solutions.append(growth.num_rows)
        return solve(growth, sample)

    solve = TreeGrowth.predictors
    monkeypatch.setattr(TreeGrowth, "predictors", predictors)
    classifier = added(TabICLLinearClassifier(), x, y, 110, 120, 130)
    assert solutions == []
    probabilities = classifier.predict_proba(x)
    np.testing.assert_array_equal(classifier.predict_proba(x), probabilities)
    classifier.save(tmp_path / "state")
    loaded = TabICLLinearClassifier.load(tmp_path / "state")
    np.testing.assert_array_equal(loaded.predict_proba(x), probabilities)
    assert solutions == [240]


def test_while_rows_are_held_they_are_fitted_as_those_of_a_table(table):
    """Members have orders of their own; with rows there to stay, all have that of arrival."""
    x, y = table
    held = added(TabICLLinearClassifier(), x[:160], y[:160], 60, 61)
    whole = TabICLLinearClassifier(trees=True).fit(x[:160], y[:160])
    np.testing.assert_array_equal(held.predict_proba(x), whole.predict_proba(x))
    assert all(view.row_seed is not None for view in held.ensemble_.views)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(divisions, "LEAST_GROWING", 80)
        added(held, x[160:], y[160:])
        assert [view.row_seed for view in held.ensemble_.views] == [None]


def test_what_cannot_be_encoded_is_not_held(table):
    """A fit of all rows at once would make categories of numbers and words."""
    x, y = table
    held = added(TabICLLinearClassifier(), x[:60], y[:60])
    with pytest.raises(DataError, match="Column 'a' held numbers"):
        held.partial_fit(x[60:80].assign(a="word"), y[60:80])
    assert held.n_samples_seen_ == 60


@pytest.mark.parametrize("argument", [{"softmax_temperature": "auto"}, {"long_context": "blocks"}])
def test_what_needs_all_rows_is_refused_at_later_pieces_too(argument, table):
    x, y = table
    held = TabICLLinearClassifier().partial_fit(x[:60], y[:60])
    with pytest.raises(ConfigError, match="needs all rows at once"):
        held.set_params(**argument).partial_fit(x[60:80], y[60:80])
    assert held.n_samples_seen_ == 60


@pytest.mark.parametrize("rows", [60, 120])
def test_what_only_a_fit_can_obey_is_refused_at_later_pieces(rows, table, few_rows_grow, tmp_path):
    """While rows are held, members are made anew with each piece."""
    x, y = table
    saved = added(TabICLLinearClassifier(), x[:rows], y[:rows])
    saved.save(tmp_path / "s")
    for classifier in (saved, TabICLLinearClassifier.load(tmp_path / "s")):
        for name, value in {"trees": False, "model": "streaming", "n_estimators": 1}.items():
            if (name, rows) == ("n_estimators", 60):
                continue
            kept = classifier.get_params()[name]
            classifier.set_params(**{name: value})
            with pytest.raises(ConfigError, match=f"{name}={value!r}: .* with {name}={kept!r}"):
                classifier.partial_fit(x[rows:], y[rows:])
            assert classifier.n_samples_seen_ == rows
            classifier.set_params(**{name: kept})
        classifier.set_params(rows_per_batch=99, n_jobs=1, class_weight="balanced", verbose=1)
        assert classifier.partial_fit(x[rows:], y[rows:]).n_samples_seen_ == 240


def test_members_may_change_while_rows_are_held(table):
    x, y = table
    held = added(TabICLLinearClassifier(), x[:40], y[:40])
    held.set_params(n_estimators=3).partial_fit(x[40:50], y[40:50])
    assert len(held.ensemble_.views) == 3


def test_rows_that_are_held_are_not_those_of_the_caller():
    """Who fills the same arrays for every piece does not change the pieces before."""
    x, y = ruled_table(80)
    piece, labels = np.empty_like(x[:40]), np.empty_like(y[:40])
    held, expected = TabICLLinearClassifier(), TabICLLinearClassifier()
    for start in (0, 40):
        part = slice(start, start + 40)
        piece[:], labels[:] = x[part], y[part]
        held.partial_fit(piece, labels, [0, 1, 2])
        expected.partial_fit(x[part], y[part], [0, 1, 2])
    np.testing.assert_array_equal(held.predict_proba(x), expected.predict_proba(x))


@pytest.mark.parametrize("rows", [80, 180])
def test_saving_in_between_changes_nothing(rows, table, few_rows_grow, tmp_path):
    """While rows are held, and after trees are there to stay."""
    x, y = table
    one = added(TabICLLinearClassifier(), x[:rows], y[:rows], 60)
    one.save(tmp_path / "s")
    other = pickle.loads(pickle.dumps(TabICLLinearClassifier.load(tmp_path / "s")))
    assert other.state_nbytes_ == one.state_nbytes_
    np.testing.assert_array_equal(other.predict_proba(x), one.predict_proba(x))
    for classifier in (one, other):
        classifier.partial_fit(x[rows:], y[rows:])
    np.testing.assert_array_equal(other.predict_proba(x), one.predict_proba(x))


def shops(num_rows, num_shops=40):
    """Rows of two classes, told by the shop alone."""
    rng = np.random.default_rng(0)
    names, rates = rng.integers(num_shops, size=num_rows), rng.random(num_shops) < 0.5
    y = np.where(rates[names] ^ (rng.random(num_rows) < 0.1), "yes", "no")
    return pd.DataFrame({"shop": [f"shop {n}" for n in names], "n": rng.normal(size=num_rows)}), y


def test_rates_of_categories_know_all_rows(monkeypatch):
    """While rows are held they are learnt anew, and later they are counted."""
    monkeypatch.setattr(divisions, "LEAST_GROWING", 200)
    x, y = shops(1200)
    fitted = TabICLLinearClassifier().partial_fit(x[:30], y[:30])
    kinds = [type(column) for column in fitted.preprocessor_.columns]
    assert RateColumn not in kinds
    fitted.partial_fit(x[30:350], y[30:350])
    kinds = [type(column) for column in fitted.preprocessor_.columns]
    assert RateColumn in kinds
    fitted.partial_fit(x[350:800], y[350:800]).partial_fit(x[800:], y[800:])
    (column,) = [c for c in fitted.preprocessor_.columns if isinstance(c, CountedRateColumn)]
    for shop in ("shop 0", "shop 39"):
        assert column.rows[column.places[shop]] == (x["shop"] == shop).sum()
        assert column.hits[column.places[shop]] == (y[x["shop"] == shop] == "yes").sum()
    assert fitted.score(x[800:], y[800:]) > 0.8


def test_categories_that_come_late_are_told_apart(monkeypatch):
    """Half of the shops come after trees have been grown for good."""
    monkeypatch.setattr(divisions, "LEAST_GROWING", 200)
    x, y = shops(1600)
    number = x["shop"].str.removeprefix("shop ").astype(int)
    order = np.argsort((number >= 20).to_numpy() | (np.arange(1600) >= 1400), kind="stable")
    x, y = x.iloc[order], y[order]
    fitted = TabICLLinearClassifier()
    for start in range(0, 1400, 350):
        fitted.partial_fit(x[start : start + 350], y[start : start + 350])
    is_late = number.to_numpy()[order] >= 20
    is_late[:1400] = False
    assert is_late.sum() > 60
    assert fitted.score(x[is_late], y[is_late]) > 0.8


def test_what_is_known_of_columns_does_not_depend_on_the_cuts(table, few_rows_grow):
    """Not even if the first piece is too short to tell."""
    x, y = table
    x = x.assign(late=[0.0] * 30 + list(range(210)), when=pd.Timestamp("2024-01-01"))
    pieces, whole = TabICLLinearClassifier(), TabICLLinearClassifier()
    pieces, whole = added(pieces, x, y, 20, 25, 99, 120), added(whole, x, y)
    assert pieces.preprocessor_.columns == whole.preprocessor_.columns
    np.testing.assert_allclose(pieces.predict_proba(x), whole.predict_proba(x), atol=1e-5)
    held = added(TabICLLinearClassifier(), x[:90], y[:90], 20, 25)
    again = TabICLLinearClassifier().fit(x[:90], y[:90])
    assert held.preprocessor_.columns == again.preprocessor_.columns
    again = added(TabICLLinearClassifier(), x[:90], y[:90])
    np.testing.assert_allclose(held.predict_proba(x), again.predict_proba(x), atol=1e-5)


def test_pieces_of_an_iterator_are_those_that_are_added(table, few_rows_grow, monkeypatch):
    monkeypatch.setattr(rows_in_pieces, "FIRST_ROWS", 70)
    monkeypatch.setattr(fitting, "FIRST_ROWS", 70)
    x, y = table
    ends = (0, 40, 80, 130, 131, 200, 240)
    pieces = [(x[i:j], y[i:j]) for i, j in pairwise(ends)]
    of_iterator = TabICLLinearClassifier().fit(iter(pieces))
    grown = added(TabICLLinearClassifier(), x, y, *ends[1:-1])
    assert of_iterator.preprocessor_.columns == grown.preprocessor_.columns
    np.testing.assert_allclose(of_iterator.predict_proba(x), grown.predict_proba(x), atol=1e-5)
    assert of_iterator.n_samples_seen_ == 240
    assert of_iterator.state_nbytes_ < grown.state_nbytes_ / 10
    other = y.copy()
    other[200:] = np.roll(other[200:], 1)
    moved = [(x[i:j], other[i:j]) for i, j in pairwise(ends)]
    elsewhere = TabICLLinearClassifier().fit(iter(moved)).predict_proba(x)
    assert np.abs(elsewhere - of_iterator.predict_proba(x)).max() > 1e-3


def test_all_rows_that_are_in_memory_first_grow_the_trees(table, few_rows_grow, monkeypatch):
    """More than those that `partial_fit` would hold, and wherever the pieces are cut."""
    monkeypatch.setattr(rows_in_pieces, "FIRST_ROWS", 180)
    monkeypatch.setattr(fitting, "FIRST_ROWS", 180)
    monkeypatch.setattr(divisions, "LEAST_GROWING", 30)
    x, y = table
    x = x.assign(late=[0.0] * 170 + list(range(70)))

    def fitted(*ends):
        pieces = [(x[i:j], y[i:j]) for i, j in pairwise((0, *ends, len(y)))]
        return TabICLLinearClassifier().fit(iter(pieces))

    one, other = fitted(180), fitted(50, 170, 190, 220)
    assert "late" in {column.name for column in one.preprocessor_.columns}
    assert one.preprocessor_.columns == other.preprocessor_.columns
    np.testing.assert_allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_is_its_rows_added(suffix, table, few_rows_grow, monkeypatch, tmp_path):
    monkeypatch.setattr(rows_in_pieces, "FIRST_ROWS", 70)
    monkeypatch.setattr(fitting, "FIRST_ROWS", 70)
    monkeypatch.setattr(table_file, "ROWS_PER_PIECE", 50)
    x, y = table
    path = tmp_path / f"t.{suffix}"
    getattr(x.assign(y=y), f"to_{suffix}")(path, index=False)
    of_file = TabICLLinearClassifier().fit(path, "y")
    grown = added(TabICLLinearClassifier(), x, y, 100)
    np.testing.assert_allclose(of_file.predict_proba(x), grown.predict_proba(x), atol=1e-5)


def test_few_rows_of_one_class_may_come_first(table, few_rows_grow):
    x, y = table
    order = np.argsort(y != "no", kind="stable")
    x, y = x.iloc[order], y[order]
    x.iloc[0, :5] = np.arange(5)
    fitted = added(TabICLLinearClassifier(), x, y, 10, 70, 150)
    assert fitted.score(x, y) > 0.6


def test_classes_without_a_row_that_grows_trees_are_named_once(
    table, few_rows_grow, monkeypatch, tmp_path
):
    """As in a file that is sorted by class."""
    monkeypatch.setattr(table_file, "ROWS_PER_PIECE", 50)
    monkeypatch.setattr(rows_in_pieces, "FIRST_ROWS", 70)
    monkeypatch.setattr(fitting, "FIRST_ROWS", 70)
    x, y = table
    order = np.argsort(y, kind="stable")
    x, y = x.iloc[order], y[order]
    message = r"^The first 100 rows, which grow the trees, hold no row of classes yes, .* shuffle"
    with pytest.warns(UserWarning, match=message) as caught:
        added(TabICLLinearClassifier(), x, y, 90, 180)
    assert len(caught) == 1
    x.assign(y=y).to_csv(tmp_path / "sorted.csv", index=False)
    with pytest.warns(UserWarning, match=message):
        TabICLLinearClassifier().fit(tmp_path / "sorted.csv", "y")
    shuffled = np.random.default_rng(0).permutation(240)
    added(TabICLLinearClassifier(), x.iloc[shuffled], y[shuffled], 90, 180)


def test_rows_may_come_one_by_one(table, tmp_path):
    """No column varies over the first row, so all rows are as likely to be of its class."""
    x, y = table
    x = x.assign(empty=None)
    names = ["no", "perhaps", "yes"]
    grown = TabICLLinearClassifier()
    for row in range(6):
        grown.partial_fit(x[row : row + 1], y[row : row + 1], names, prequential=True)
        grown.save(tmp_path / "a.state")
        grown = TabICLLinearClassifier.load(tmp_path / "a.state")
        if row == 0:
            np.testing.assert_array_equal(grown.predict(x), y[[0] * 240])
    whole = TabICLLinearClassifier().partial_fit(x[:6], y[:6], names)
    np.testing.assert_array_equal(grown.predict_proba(x), whole.predict_proba(x))
    assert grown.prequential_["rows_seen"].tolist() == [1, 2, 3, 4, 5]


def test_rows_that_do_not_vary_are_predicted_by_the_shares_of_classes(few_rows_grow):
    rows = divisions.rows_that_grow()
    x, y = np.ones((rows, 2)), np.arange(rows) % 4 == 0
    fitted = TabICLLinearClassifier().partial_fit(x[1:], y[1:])
    expected = y[1:].mean()
    np.testing.assert_allclose(fitted.predict_proba([[1, 1], [3, 4]])[:, 1], expected, atol=0.01)
    with pytest.raises(DataError, match=f"None of the 2 columns varies over the {rows} training"):
        fitted.partial_fit(x[:1], y[:1])
    with pytest.raises(DataError, match="None of the 0 columns varies"):
        TabICLLinearClassifier().partial_fit(pd.DataFrame(index=range(3)), [0, 1, 1])
    assert fitted.partial_fit(x[:1] * 2, y[:1]).n_samples_seen_ == rows


def test_pieces_are_scored_before_they_are_added(table, few_rows_grow):
    x, y = table
    scored = TabICLLinearClassifier()
    for start in range(0, 240, 80):
        scored.partial_fit(x[start : start + 80], y[start : start + 80], prequential=True)
    assert scored.prequential_["rows_seen"].tolist() == [80, 160]
    plain = added(TabICLLinearClassifier(), x, y, 80, 160)
    np.testing.assert_array_equal(plain.predict_proba(x), scored.predict_proba(x))


def test_hundreds_of_classes_take_little_memory():
    """A Newton step on the logits of 300 classes would take 65 GB; see `MOST_MAPPED`."""
    labels = np.arange(900) % 300
    rows = np.random.default_rng(0).normal(scale=0.1, size=(900, 2))
    rows += np.stack([labels // 20, labels % 20], axis=1)
    classifier = TabICLLinearClassifier().fit(rows[:600], labels[:600])
    assert classifier.score(rows[600:], labels[600:]) > 0.2


def test_a_temperature_is_calibrated_on_columns_as_they_are_fitted():
    """Comparisons make these rows certain; without them, held-out rows would want another one."""
    rng = np.random.default_rng(0)
    first, other = rng.integers(0, 12, (2, 600))
    other[::2] = first[::2]
    letters = np.array(list("abcdefghijkl"))
    x = pd.DataFrame({"one": letters[first], "other": letters[other]})
    classifier = TabICLLinearClassifier(trees=True, softmax_temperature="auto")
    classifier.fit(x, first == other)
    assert classifier.preprocessor_.columns[-1].says == "difference"
    assert classifier.fitted_.temperature == pytest.approx(1, abs=0.02)

"""Columns of wide tables: judged by the training rows, and shared out among the members."""

import time
from collections import Counter

import numpy as np
import pytest

from tabicl_linear import RandomFeatureRidge
from tabicl_linear.estimator.members.relevance import (
    MAX_ROWS,
    Relevance,
    choose_columns,
    relevance,
)
from tabicl_linear.ridge_inputs import RidgeOptions

SMALL = RidgeOptions(num_tanh=32, num_cosine=32, num_trees=16)


def needle(num_rows, num_columns, seed=0):
    """Noise, and the label in the sign of one column."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(num_rows, num_columns)).astype(np.float32)
    return table, (table[:, num_columns // 3] > 0).astype(np.int64)


def test_relevance_is_the_mutual_information():
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=8000)
    table = np.stack([labels, labels // 2, rng.integers(100, size=8000)], axis=1)
    scores = relevance(table.astype(np.float32), labels, np.array([True, True, True])).gains
    np.testing.assert_allclose(scores, np.log([4, 2, 1]), atol=4e-3)


def test_numbers_are_judged_whatever_the_shape_of_the_relation():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(2000, 5)).astype(np.float32)
    labels = (np.abs(table[:, 3]) > 0.7).astype(np.int64)
    table[:, 1] = np.where(labels == 1, np.nan, table[:, 1])
    scores = relevance(table, labels, np.zeros(5, bool)).gains
    assert set(np.argsort(-scores)[:2]) == {1, 3}
    assert np.abs(scores[[0, 2, 4]]).max() < 0.01


def test_many_categories_without_meaning_are_not_preferred():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=3000)
    weak = np.where(rng.random(3000) < 0.65, labels, 1 - labels)
    table = np.stack([rng.integers(200, size=3000), weak], axis=1).astype(np.float32)
    scores = relevance(table, labels, np.array([True, True])).gains
    assert scores[1] > 2 * abs(scores[0])


def test_relevance_of_long_tables_uses_a_sample_and_does_not_depend_on_chance():
    table, labels = needle(3 * MAX_ROWS, 4)
    first, second = (relevance(table, labels, np.zeros(4, bool)).gains for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.argmax() == 1


def test_a_column_without_any_value_says_nothing():
    table, labels = needle(100, 3)
    table[:, 0] = np.nan
    assert relevance(table, labels, np.zeros(3, bool)).gains[0] == 0


@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize("num_rows", [100, 800])
def test_columns_that_tell_are_counted_among_noise(num_rows, num_classes):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(num_rows) % num_classes)
    table = rng.normal(size=(num_rows, 500)).astype(np.float32)
    margin = 3 * 500**0.5  # standard deviations: noise counts for one column or minus one
    assert relevance(table, labels, np.zeros(500, bool)).num_telling < margin
    table[:, 300:] += 2 * (labels[:, None] % 2)
    assert abs(relevance(table, labels, np.zeros(500, bool)).num_telling - 200) < margin
    table[:, 100:] += 2 * (labels[:, None] % 2)
    assert relevance(table, labels, np.zeros(500, bool)).num_telling == 500


@pytest.mark.usefixtures("few_trees")
@pytest.mark.filterwarnings("ignore:The table has:UserWarning")
@pytest.mark.parametrize(("are_telling", "num_members"), [(False, 4), (True, 5)])
def test_members_of_a_wide_table_follow_the_columns_that_tell(are_telling, num_members):
    table, labels = needle(100, 410)
    if are_telling:
        table += 2 * labels[:, None]
    fitted = RandomFeatureRidge(SMALL, trees=True).fit(table, labels)
    assert len(fitted.ensemble_.views) == num_members


def random_relevance(num_columns, num_telling):
    """Random relevances of columns, of which the most relevant ones are no chance."""
    gains = np.random.default_rng(0).random(num_columns)
    p_values = np.zeros(num_columns)
    # Half of those that tell nothing have a p-value above a half.
    p_values[np.argsort(-gains)[num_telling:][::2]] = 1.0
    return Relevance(gains, p_values)


@pytest.mark.parametrize("share_telling", [0.0, 0.1, 0.4, 1.0])
@pytest.mark.parametrize(
    ("num_columns", "num_members", "width"),
    [(21, 2, 20), (41, 8, 40), (320, 8, 40), (321, 9, 40), (400, 4, 100), (101, 1, 40), (3, 2, 2)],
)
def test_columns_find_a_place(num_columns, num_members, width, share_telling):
    """Where places are few, those that tell something; the best ones are seen by all."""
    relevances = random_relevance(num_columns, int(share_telling * num_columns))
    num_telling = relevances.num_telling
    chosen = choose_columns(relevances, num_members=num_members, width=width, seed=0)
    for columns in chosen:
        assert (np.diff(columns) > 0).all()
        assert len(columns) == width
    order, used = np.argsort(-relevances.gains), set(np.concatenate(chosen))
    half = width // 2
    dealt = num_columns if half + (width - half) * num_members >= num_columns else num_telling
    if num_members * width >= dealt:
        assert used >= set(order[:dealt])
    core = set.intersection(*(set(columns) for columns in chosen))
    if dealt <= half:
        assert core >= set(order[:half])


@pytest.mark.parametrize("num_columns", [64, 500, 2000])
def test_the_most_informative_columns_are_seen_by_all_and_others_by_rank(num_columns):
    relevances = random_relevance(num_columns, num_columns)
    order = np.argsort(-relevances.gains)
    counts: Counter = Counter()
    for seed in range(20):
        chosen = choose_columns(relevances, num_members=8, width=40, seed=seed)
        assert all(set(order[:20]) <= set(columns) for columns in chosen)
        counts.update(np.concatenate(chosen).tolist())
    used = np.array([counts[column] for column in order])
    rest = np.array_split(used[20:], 3)
    assert rest[0].mean() > rest[1].mean() > 1.1 * rest[2].mean() > 0


def test_the_choice_is_a_function_of_the_seed():
    def choice(seed):
        return np.stack(
            choose_columns(random_relevance(200, 3), num_members=4, width=10, seed=seed)
        ).tolist()

    assert choice(1) == choice(1)
    assert choice(1) != choice(2)
    assert len(set(map(tuple, choice(1)))) == 4


@pytest.mark.filterwarnings("ignore:The table has:UserWarning")
@pytest.mark.parametrize("num_columns", [21, 64, 2000])
def test_the_label_in_one_column_is_found_among_many(num_columns):
    table, labels = needle(700, num_columns)
    classifier = RandomFeatureRidge(SMALL, n_estimators=4).fit(table[:400], labels[:400])
    assert classifier.score(table[400:], labels[400:]) > 0.95


def test_test_rows_do_not_move_the_choice():
    table, labels = needle(400, 100)
    with pytest.warns(UserWarning, match="has 100 usable columns and the model takes 40"):
        fitted = RandomFeatureRidge(SMALL, n_estimators=3).fit(table[:200], labels[:200])
    alone = fitted.predict_proba(table[200:210])
    np.testing.assert_allclose(fitted.predict_proba(table[200:])[:10], alone, atol=1e-5)


def test_columns_that_nobody_uses_are_told_with_the_remedy():
    table, labels = needle(100, 100)
    with pytest.warns(UserWarning, match="not used at all; with n_estimators=3 or more all are"):
        RandomFeatureRidge(SMALL, n_estimators=2).fit(table, labels)


def test_cost_is_linear_in_columns():
    def seconds(num_columns):
        table, labels = needle(500, num_columns)
        start = time.process_time()
        relevances = relevance(table, labels, np.zeros(num_columns, bool))
        choose_columns(relevances, num_members=8, width=40, seed=0)
        return time.process_time() - start

    seconds(50)
    short = min(seconds(400) for _ in range(3))
    assert min(seconds(1600) for _ in range(3)) < 10 * short

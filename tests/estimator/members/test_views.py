import threading
import warnings
from collections import Counter

import numpy as np
import pytest
from log_messages import messages_of
from scipy.stats import yeojohnson, yeojohnson_normmax
from sklearn.preprocessing import PowerTransformer
from tolerances import SEARCHED

from tabicl_linear.estimator.members.views import (
    PowerColumns,
    draw_views,
    in_class_order,
    yeo_johnson,
    yeo_johnson_exponent,
)


def draw(num_views=10, num_columns=7, num_classes=3, seed=0, chosen=None):
    columns = chosen or [np.arange(num_columns)] * num_views
    return draw_views(columns, num_classes=num_classes, seed=seed)


def shift_of(view):
    return view.class_shift, tuple(view.columns)


def test_members_are_distinct_shifts_with_alternating_transforms():
    views = draw(num_views=21)
    assert len(set(map(shift_of, views))) == 21
    assert [view.power for view in views] == [False, True] * 10 + [False]
    for view in views:
        first = view.columns[0]
        np.testing.assert_array_equal(view.columns, (np.arange(7) + first) % 7)


def test_every_combination_occurs_once_per_turn_and_with_both_transforms():
    for num_columns, num_classes in ((2, 2), (3, 3), (1, 2)):
        size = num_columns * num_classes
        views = draw(num_views=2 * size, num_columns=num_columns, num_classes=num_classes)
        pairs = Counter((*shift_of(view), view.power) for view in views)
        assert set(pairs.values()) == {1}
        assert len(pairs) == 2 * size


def test_views_are_a_function_of_the_seed():
    def key(views):
        return [(*shift_of(view), view.power, view.row_seed) for view in views]

    assert key(draw(seed=1)) == key(draw(seed=1))
    assert key(draw(seed=1)) != key(draw(seed=2))
    assert key(draw(seed=1))[:4] == key(draw(seed=1, num_views=4))


def test_row_orders_are_permutations_of_their_own():
    first, second = draw(num_views=2)
    np.testing.assert_array_equal(np.sort(first.row_order(50)), np.arange(50))
    np.testing.assert_array_equal(first.row_order(50), first.row_order(50))
    assert (first.row_order(50) != second.row_order(50)).any()


def test_members_see_their_chosen_columns_shifted():
    chosen = [np.array([1, 4, 6, 9]), np.array([0, 1, 2, 3]), np.array([2, 5, 7, 8])]
    views = draw(num_views=3, num_columns=4, chosen=chosen)
    for view, columns in zip(views, chosen, strict=True):
        np.testing.assert_array_equal(np.sort(view.columns), columns)
    plain = draw(num_views=3, num_columns=4)
    for view, columns, same in zip(views, chosen, plain, strict=True):
        np.testing.assert_array_equal(view.columns, columns[same.columns])
        assert view.row_seed == same.row_seed


def test_class_shifts_are_undone():
    logits = np.random.default_rng(0).normal(size=(4, 5, 3))
    views = draw(num_views=4)
    assert len({view.class_shift for view in views}) > 1
    seen = np.empty_like(logits)
    for member, view in enumerate(views):
        for c in range(3):
            seen[member, :, (c + view.class_shift) % 3] = logits[member, :, c]
    np.testing.assert_array_equal(in_class_order(seen, views), logits)


def test_a_view_without_a_seed_keeps_the_order_of_the_rows():
    view = draw(num_views=1)[0]
    assert view.row_order(9).tolist() != list(range(9))
    assert view._replace(row_seed=None).row_order(9).tolist() == list(range(9))


def test_power_columns_is_yeo_johnson_on_numeric_columns_only():
    rng = np.random.default_rng(0)
    matrix = np.exp(rng.normal(size=(100, 3))).astype(np.float32)
    matrix[3, 0] = np.nan
    categorical = np.array([False, True, False])
    power = PowerColumns().fit(matrix, categorical, np.arange(3))
    out = power.transform(matrix)
    expected = PowerTransformer().fit_transform(matrix.astype(np.float64))
    np.testing.assert_allclose(out[:, [0, 2]], expected[:, [0, 2]], atol=1e-5)
    np.testing.assert_array_equal(out[:, 1], matrix[:, 1])


@pytest.mark.parametrize("exponent", [-40.0, 0.0, 1e-17, 1e-9, 0.5, 1.0, 2.0, 2 + 1e-15, 33.0])
def test_the_transform_is_that_of_scipy(exponent):
    rng = np.random.default_rng(0)
    few = [np.nan, 0.0, -0.0, 1.0, -1.0, 5e-324, -1e-300, 1e30, -1e30]
    values = np.concatenate([rng.standard_t(2, size=200), few])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(yeo_johnson(values, exponent), yeojohnson(values, exponent))


@pytest.mark.parametrize("rows", [3, 400])
@pytest.mark.parametrize("shape", ["above", "below", "both", "one rare", "counts", "symmetric"])
def test_the_exponent_is_the_one_that_scipy_searches(shape, rows):
    rng = np.random.default_rng(0)
    values = {
        "above": rng.lognormal(size=rows),
        "below": -rng.lognormal(size=rows),
        "both": rng.standard_t(2, size=rows).clip(-100, 100),
        "one rare": np.where(np.arange(rows) == 1, 100.0, -0.01),
        "counts": rng.poisson(2, size=rows) - 0.5,
        "symmetric": np.linspace(-1, 1, rows),
    }[shape]
    assert yeo_johnson_exponent(values) == pytest.approx(yeojohnson_normmax(values), abs=SEARCHED)


@pytest.mark.parametrize("values", [np.zeros(5), np.full(5, -3.0), np.zeros(0)])
def test_a_constant_keeps_its_values(values):
    assert yeo_johnson_exponent(values) == 1.0


@pytest.mark.filterwarnings("ignore:of something else")
def test_warnings_of_other_threads_do_not_count_as_those_of_a_transform():
    matrix = np.random.default_rng(0).lognormal(size=(100, 20)).astype(np.float32)
    fitted = threading.Event()

    def other_thread():
        while not fitted.wait(0.001):
            warnings.warn("of something else", UserWarning, stacklevel=1)

    other = threading.Thread(target=other_thread, daemon=True)
    other.start()
    with messages_of("tabicl_linear") as messages:
        PowerColumns().fit(matrix, np.zeros(20, dtype=bool), np.arange(20))
    fitted.set()
    other.join()
    assert not messages


def test_power_transformed_queries_far_outside_are_clipped():
    matrix = np.linspace(-2, 2, 50, dtype=np.float32)[:, None]
    power = PowerColumns().fit(matrix, np.array([False]), np.arange(1))
    far = power.transform(np.array([[3e38], [-3e38], [np.nan]], dtype=np.float32))
    np.testing.assert_array_equal(far[:, 0], [100, -100, np.nan])


@pytest.mark.parametrize(
    "bad",
    [
        np.array([1] + [np.nan] * 99, dtype=np.float32),
        np.array([np.nan] * 100, dtype=np.float32),
    ],
)
def test_a_column_whose_transform_fails_keeps_its_scores_and_says_why(bad):
    good = np.random.default_rng(0).normal(size=100).astype(np.float32)
    matrix = np.stack([good, bad], axis=1)
    with messages_of("tabicl_linear") as messages:
        power = PowerColumns().fit(matrix, np.array([False, False]), np.arange(2))
    (line,) = messages
    assert line.startswith("column 1 of the matrix keeps its z-scores: the power transform")
    np.testing.assert_array_equal(power.transform(matrix)[:, 1], bad)

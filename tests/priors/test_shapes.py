from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from scipy import stats

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.rows import FixedRows, LogUniformRows, ShiftedLogNormalRows, UniformRows
from tabicl_linear.priors.shapes import TaskShapes

BY_LENGTH = {10_000: 8, 15_000: 6, 20_000: 4, 30_000: 3, 40_000: 2, 64_000: 1}


def draw(shapes, count, index=None):
    rng = np.random.default_rng(0)
    return [shapes.sample(rng, index) for _ in range(count)]


def test_draws_cover_the_paper_s_ranges_uniformly():
    rng, papers = np.random.default_rng(0), TaskShapes()
    shapes = [papers.sample(rng) for _ in range(20000)]
    assert {s[:2] + s[4:] for s in shapes} == {(8, 1000, 10)}
    features = np.bincount([s.num_features for s in shapes], minlength=21)
    assert features[:2].sum() == 0
    np.testing.assert_allclose(features[2:] / 20000, 1 / 19, atol=0.008)
    context = np.array([s.num_context for s in shapes])
    assert (context.min(), context.max()) == (64, 999)
    np.testing.assert_allclose(np.histogram(context, 8, (64, 1000))[0] / 20000, 1 / 8, atol=0.01)


def test_numbers_of_columns_are_log_uniform():
    shapes = TaskShapes(min_features=2, max_features=40, log_uniform_features=True)
    rng = np.random.default_rng(0)
    drawn = np.array([shapes.sample(rng).num_features for _ in range(4000)])
    edges = np.log(np.array([2, 3, 5, 10, 20, 41]))
    expected = np.diff(edges) / (edges[-1] - edges[0]) * len(drawn)
    observed, _ = np.histogram(drawn, np.exp(edges) - 1e-9)
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    assert drawn.min() == 2
    assert drawn.max() == 40


def test_draws_depend_on_the_generator_alone():
    first, second = (np.random.default_rng(7) for _ in range(2))
    draws = [[TaskShapes().sample(rng) for _ in range(5)] for rng in (first, second)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 5


def test_bounds_are_kept():
    shapes = TaskShapes(3, 40, 20, 4, 4, 5, max_context=20)
    assert shapes.sample(np.random.default_rng(0)) == (3, 40, 20, 4, 5)


def test_a_number_of_rows_is_the_fixed_distribution():
    number, distribution = TaskShapes(num_rows=200), TaskShapes(num_rows=FixedRows(200))
    assert draw(number, 50) == draw(distribution, 50)


@pytest.mark.parametrize(
    ("num_rows", "tasks"),
    [
        *((200, 8), (10_000, 8), (10_001, 6), (15_000, 6), (15_001, 4), (20_000, 4), (20_001, 3)),
        *((30_000, 3), (30_001, 2), (40_000, 2), (40_001, 1), (64_000, 1)),
    ],
)
def test_the_batch_size_follows_the_rows(num_rows, tasks):
    # The order of the entries says nothing.
    for limits in (BY_LENGTH, dict(reversed(BY_LENGTH.items()))):
        (shape,) = draw(TaskShapes(batch_size=limits, num_rows=num_rows), 1)
        assert (shape.batch_size, shape.num_rows) == (tasks, num_rows)


def test_compute_matched_batches_hold_about_8000_rows():
    rows = ShiftedLogNormalRows()
    n = np.arange(200, 64_001)
    below = stats.lognorm.cdf(n + 0.5 - 200, rows.sigma, scale=np.exp(rows.mu))
    share = np.diff(np.append(below[:-1], 1.0), prepend=0)
    tasks = np.select([n <= limit for limit in BY_LENGTH], list(BY_LENGTH.values()))
    assert share @ tasks == pytest.approx(7.958, abs=1e-3)
    assert share @ (tasks * n) == pytest.approx(8085, abs=1)


@pytest.mark.parametrize(
    ("rows", "columns", "stride", "tasks"),
    [
        *((64, 20, None, 64), (512, 2, None, 8), (4096, 20, None, 1), (10**6, 20, None, 1)),
        *((512, 20, 2, 1), (512, 5, 2, 3), (512, 2, 2, 8), (64, 20, 1, 3), (64, 7, 20, 64)),
    ],
)
def test_batches_are_filled_with_tokens(rows, columns, stride, tasks):
    """At 4096 of them; the last cell of a row may be short of columns."""
    shapes = TaskShapes(None, rows, 10, columns, columns, tokens_per_batch=4096)
    shapes = replace(shapes, columns_per_cell=stride)
    (shape,) = draw(shapes, 1)
    assert shape.batch_size == shapes.num_tasks(rows, columns) == tasks


@given(
    tokens=st.integers(1, 10**5),
    stride=st.none() | st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_batch_is_further_from_its_tokens_than_half_a_task(tokens, stride, seed):
    rows = UniformRows(64, 2000)
    shapes = TaskShapes(
        None, rows, min_context=10, tokens_per_batch=tokens, columns_per_cell=stride
    )
    shape = shapes.sample(np.random.default_rng(seed))
    cells = np.ceil(shape.num_features / (stride or shape.num_features))
    of_a_task = shape.num_rows * cells
    far = abs(shape.batch_size * of_a_task - tokens)
    assert far <= of_a_task / 2 or (shape.batch_size == 1 and of_a_task > tokens)
    # The draws of sizes are those of a batch size of the same rows and columns.
    other = TaskShapes(3, rows, min_context=10).sample(np.random.default_rng(seed))
    assert other == shape._replace(batch_size=3)


def test_stages_begin_exactly_at_their_batch():
    shapes = TaskShapes(num_rows=100, stages={70: UniformRows(200, 299), 30: 150})
    drawn = [shapes.sample(np.random.default_rng(i), i).num_rows for i in range(100)]
    assert set(drawn[:30]) == {100}
    assert set(drawn[30:70]) == {150}
    assert min(drawn[70:]) >= 200
    assert shapes.row_range == (100, 299)
    assert shapes.rows(10**9) == shapes.rows() == UniformRows(200, 299)


def test_without_a_batch_the_last_stage_holds():
    shapes = TaskShapes(num_rows=100, stages={5: UniformRows(200, 299)})
    assert draw(shapes, 20) == draw(shapes, 20, index=5) != draw(shapes, 20, index=4)


def test_shares_of_the_rows_bound_the_context():
    shapes = draw(TaskShapes(num_rows=400, min_context=0.25, max_context=0.75), 5000)
    context = np.array([s.num_context for s in shapes])
    assert (context.min(), context.max()) == (100, 300)
    np.testing.assert_allclose(np.histogram(context, 4, (100, 301))[0] / 5000, 0.25, atol=0.03)


def test_a_whole_number_of_context_rows_may_come_as_a_float():
    """Of a union with int, jsonargparse may take float, depending on what was imported before."""
    shapes = TaskShapes(min_context=100.0, max_context=500.0)
    assert shapes.context_range == (100, 500)
    assert draw(shapes, 20) == draw(TaskShapes(min_context=100, max_context=500), 20)


def test_a_fixed_number_of_queries():
    shapes = draw(TaskShapes(num_rows=LogUniformRows(200, 900), num_queries=100), 200)
    assert {s.num_rows - s.num_context for s in shapes} == {100}
    assert len({s.num_rows for s in shapes}) > 100


bounds = st.one_of(st.integers(2, 60), st.floats(0, 1, exclude_max=True))


@given(
    low=bounds,
    high=st.none() | bounds,
    fewest=st.integers(2, 200),
    width=st.integers(0, 300),
    classes=st.integers(2, 12),
    queries=st.none() | st.integers(1, 50),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_is_not_refused_makes_tasks_within_the_bounds(
    low, high, fewest, width, classes, queries, seed
):
    rows = UniformRows(fewest, fewest + width)
    try:
        shapes = TaskShapes(
            num_rows=rows,
            min_context=low,
            max_context=high,
            num_queries=queries,
            max_classes=classes,
        )
    except ConfigError:
        reject()
    rng = np.random.default_rng(seed)
    for _ in range(20):
        shape = shapes.sample(rng)
        n, context = shape.num_rows, shape.num_context
        assert fewest <= n <= fewest + width
        assert classes <= context <= n - 1
        assert queries in (None, n - context)
        assert context >= (low if isinstance(low, int) else min(low * n - 0.5, n - 1))
        if high is not None:
            assert context <= (high if isinstance(high, int) else max(high * n + 0.5, classes))
        least, most = shapes.context_range
        assert least <= context <= most


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (64, 999)),
        ({"num_rows": UniformRows(100, 200)}, (64, 199)),
        ({"num_rows": UniformRows(100, 200), "max_context": 150}, (64, 150)),
        ({"num_rows": UniformRows(100, 200), "min_context": 0.3, "max_context": 0.9}, (30, 180)),
        ({"num_rows": UniformRows(100, 200), "min_context": 0.0, "max_context": 0.999}, (10, 199)),
        ({"num_rows": UniformRows(100, 200), "num_queries": 36}, (64, 164)),
        ({"num_rows": 100, "stages": {1: 80, 2: 300}}, (64, 299)),
    ],
)
def test_the_range_of_context_rows_is_exact(options, expected):
    shapes = TaskShapes(**options)
    assert shapes.context_range == expected
    last = 2 if shapes.stages else 0
    context = [s.num_context for i in range(last + 1) for s in draw(shapes, 4000, index=i)]
    assert (min(context), max(context)) == pytest.approx(expected, abs=4)


TOO_LARGE = [
    ({"max_features": 10**9}, (8, 1000, 10**9)),
    ({"batch_size": 2**30}, (2**30, 1000, 20)),
    ({"num_rows": UniformRows(100, 7 * 10**6)}, (8, 7 * 10**6, 20)),
    ({"num_rows": LogUniformRows(100, 10**30)}, (8, 10**30, 20)),
    ({"num_rows": ShiftedLogNormalRows(max_rows=10**12)}, (8, 10**12, 20)),
    ({"stages": {9: 10**8}}, (8, 10**8, 20)),
    ({"batch_size": {100: 10**9, 1000: 1}, "num_rows": UniformRows(90, 999)}, (10**9, 100, 20)),
    ({"batch_size": None, "tokens_per_batch": 10**9}, (10**6, 1000, 20)),
]
"""Batches of more cells than memory has, and the largest of them: tasks, rows, columns."""


def test_the_largest_batch_that_is_not_refused():
    """1,000 rows of 2**18 columns, and the paper's longest tables by far."""
    shapes = TaskShapes(batch_size=4, num_rows=1024, min_features=1, max_features=2**18)
    assert shapes.sample(np.random.default_rng(0)).num_rows == 1024
    with pytest.raises(ConfigError, match="4 tasks of num_rows=1024 and 262145 columns"):
        replace(shapes, max_features=2**18 + 1)
    TaskShapes(batch_size=1, num_rows=10**6, max_features=1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"max_classes": 1}, "max_classes=1"),
        ({"min_features": 5, "max_features": 4}, "min_features=5, max_features=4"),
        ({"min_features": 0}, "min_features=0"),
        ({"min_context": 5}, "min_context=5 with max_classes=10"),
        ({"num_rows": 64}, "leaves no query"),
        ({"max_context": 1000}, "max_context=1000"),
        ({"max_context": 63}, "max_context=63"),
        ({"num_rows": 0}, "num_rows=0"),
        ({"num_rows": UniformRows(50, 900)}, "num_rows=50 leaves no query"),
        ({"num_rows": 10, "min_context": 0.5}, "num_rows=10 leaves no query"),
        ({"min_context": 1.5}, "min_context=1.5"),
        ({"min_context": float("nan")}, "min_context=nan"),
        ({"max_context": -0.1}, "max_context=-0.1"),
        ({"min_context": -500}, "min_context=-500"),
        ({"max_context": 1.0}, "max_context=1.0 with max_classes=10"),
        ({"max_context": float("inf")}, "max_context=inf"),
        ({"max_context": 0.05}, "max_context=0.05 allows 50 .* min_context=64"),
        ({"min_context": 0.1, "max_context": 5}, "max_context=5 with max_classes=10"),
        (
            {"num_rows": UniformRows(100, 1000), "min_context": 0.5, "max_context": 400},
            "max_context=400 allows 400 context rows of num_rows=1000, fewer than min_context=0.5",
        ),
        ({"num_queries": 0}, "num_queries=0"),
        ({"num_queries": 937}, "num_queries=937 .* from 1 to 936"),
        ({"num_queries": 10, "max_context": 500}, "max_context=500 with num_queries=10"),
        ({"batch_size": {}}, "batch_size={}"),
        ({"batch_size": {1000: 0}}, "batch_size={1000: 0}"),
        ({"batch_size": {999: 8}}, "no entry for num_rows=1000"),
        ({"stages": {9: 2000}, "batch_size": {1000: 8}}, "no entry for num_rows=2000"),
        ({"tokens_per_batch": 4096}, "batch_size=8 with tokens_per_batch=4096"),
        ({"batch_size": None}, "batch_size=None with tokens_per_batch=None"),
        ({"batch_size": None, "tokens_per_batch": 0}, "tokens_per_batch=0"),
        (
            {"batch_size": None, "tokens_per_batch": 9, "columns_per_cell": 0},
            "columns_per_cell=0",
        ),
        ({"columns_per_cell": 2}, "columns_per_cell=2"),
        ({"stages": {0: 500}}, "entry for batch 0"),
        ({"stages": {9: 60}}, "num_rows=60 leaves no query"),
        *(
            (options, f"{tasks} tasks of num_rows={rows} and {columns} columns, more than")
            for options, (tasks, rows, columns) in TOO_LARGE
        ),
    ],
)
def test_impossible_bounds_are_refused_at_construction(options, message):
    with pytest.raises(ConfigError, match=message) as error:
        TaskShapes(**options)
    assert "\n" not in str(error.value)

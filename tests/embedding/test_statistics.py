"""Context statistics against a plain loop over tasks and columns, and in awkward columns."""

import math

import numpy as np
import pytest
import torch
from tolerances import CONTRACT, assert_close

from tabicl_linear.embedding.statistics import context_statistics, standardise

NUM_FEATURES = 20


def _apply(context, rows, categorical=None, labels=None):
    """Standardise rows by the statistics of a context, given as [rows, columns] arrays."""
    context, rows = (torch.as_tensor(z, dtype=torch.float64)[None] for z in (context, rows))
    if categorical is None:
        categorical = [False] * context.shape[2]
    labels = torch.zeros(context.shape[:2], dtype=torch.long) if labels is None else labels
    by = context_statistics(context, labels, torch.tensor([categorical]), num_features=NUM_FEATURES)
    return standardise(rows, by)[0].numpy(), by


def _column_loop(context, rows, categorical):
    """The authors' steps for one table, column by column."""
    out, used = np.zeros_like(rows), 0
    for j in range(context.shape[1]):
        c, r = context[:, j].copy(), rows[:, j].copy()
        distinct = np.unique(c[np.isfinite(c)])
        if categorical[j]:
            codes = {v: i for i, v in enumerate(distinct)}

            def encode(z, codes=codes):
                return np.array([codes.get(v, -1.0) if np.isfinite(v) else v for v in z])

            c, r = encode(c), encode(r)
        fill = c[np.isfinite(c)].mean() if np.isfinite(c).any() else 0.0
        c[~np.isfinite(c)], r[~np.isfinite(r)] = fill, fill
        if c.min() == c.max():
            continue
        used += 1
        if categorical[j] and len(distinct) <= 10:
            out[:, j] = r.clip(-100, 100)
            continue
        clip = lambda z: z  # noqa: E731
        if not categorical[j]:
            kept = c[abs(c - c.mean()) <= 4 * c.std(ddof=1)]
            low, high = (kept.mean() + s * 4 * kept.std(ddof=1) for s in (-1, 1))

            def clip(z, low=low, high=high):
                z = np.maximum(z, low - np.log1p(abs(z)))
                return np.minimum(z, high + np.log1p(abs(z)))

        mean, std = clip(c).mean(), clip(c).std(ddof=1)
        out[:, j] = ((clip(r) - mean) / std).clip(-100, 100)
    return out * math.sqrt(NUM_FEATURES / max(used, 1))


def test_equals_a_loop_over_columns():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(80, 8))
    table[:, 1] *= 1e4
    table[3, 1] = 1e7  # an outlier
    table[:, 2] = rng.integers(0, 4, 80)
    table[:, 3] = rng.integers(0, 30, 80) * 2.5
    table[:, 4] = 7.25
    table[rng.random((80, 8)) < 0.1] = np.nan
    table[5, 0], table[70, 0] = np.inf, -np.inf
    categorical = [False, False, True, True, False, False, True, False]
    table[:, 6] = rng.integers(0, 2, 80)
    table[60:, 6] = 9.0  # unseen in the context
    actual, _ = _apply(table[:60], table, categorical)
    expected = _column_loop(table[:60], table, categorical)
    assert_close(torch.tensor(actual), torch.tensor(expected), CONTRACT)


def test_statistics_are_those_of_each_task_alone():
    x = torch.randn(3, 30, 4, dtype=torch.float64)
    x[1] *= 100
    categorical = torch.tensor([[False] * 4, [True, False, False, False], [False] * 4])
    y = torch.randint(0, 3, (3, 30))
    together = standardise(x, context_statistics(x, y, categorical, num_features=6))
    for i in range(3):
        alone = context_statistics(
            x[i : i + 1], y[i : i + 1], categorical[i : i + 1], num_features=6
        )
        assert_close(standardise(x[i : i + 1], alone)[0], together[i], CONTRACT)
        assert alone.mean_label.item() == pytest.approx(y[i].double().mean().item())


@pytest.mark.parametrize("context", [[[3.0]], [[0.1], [0.1], [0.1]], [[math.nan], [math.nan]]])
def test_columns_without_information_become_zero_whatever_the_query_holds(context):
    rows, by = _apply(context, [[5.0], [math.nan], [math.inf], [-1e30]])
    assert np.array_equal(rows, np.zeros((4, 1)))
    assert by.row_scale.item() == pytest.approx(math.sqrt(NUM_FEATURES))


def test_infinities_and_huge_values_stay_finite_and_bounded():
    rows, _ = _apply([[1.0], [2.0], [4.0], [math.inf]], [[1e300], [-1e300], [math.inf]])
    assert np.isfinite(rows).all()
    assert abs(rows).max() <= 100 * math.sqrt(NUM_FEATURES)
    assert rows[2, 0] == pytest.approx(
        _apply([[1.0], [2.0], [4.0], [math.inf]], [[7 / 3]])[0][0, 0]
    )


def test_few_categories_stay_codes_and_many_are_standardised():
    few = np.arange(60.0)[:, None] % 10
    many = np.arange(60.0)[:, None] % 11
    scale = math.sqrt(NUM_FEATURES)
    assert np.allclose(_apply(few, few, [True])[0], few * scale)
    assert abs(_apply(many, many, [True])[0].mean()) < 1e-9
    unseen, _ = _apply(few, [[77.0]], [True])
    assert unseen[0, 0] == pytest.approx(-scale)


def test_scale_grows_as_columns_carry_nothing():
    table = np.random.default_rng(0).normal(size=(50, 4))
    full, _ = _apply(table, table)
    table[:, 2:] = 1.0
    half, _ = _apply(table, table)
    assert np.allclose(half[:, :2], full[:, :2] * math.sqrt(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_never_change_the_statistics_of_their_context(dtype):
    x = torch.randn(1, 20, 3, dtype=dtype)
    by = context_statistics(
        x, torch.zeros(1, 20, dtype=torch.long), torch.zeros(1, 3, dtype=torch.bool), num_features=3
    )
    alone = standardise(x[:, :1], by)
    joined = standardise(torch.cat([x[:, :1], torch.full((1, 5, 3), 1e9, dtype=dtype)], 1), by)
    assert torch.equal(alone, joined[:, :1])
    assert alone.dtype == dtype


@pytest.mark.parametrize("rows_per_chunk", [1, 7, 64, 1000])
def test_chunks_of_rows_give_the_statistics_of_the_whole(rows_per_chunk):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 200, 5, generator=g, dtype=torch.float64) * 1e3 + 1e6
    x[0, 17, 0] = 1e12  # an outlier
    x[:, :, 1] = torch.randint(0, 40, (3, 200), generator=g).double()
    x[:, :, 2] = torch.arange(200.0, dtype=torch.float64) * 3.5  # every row a category of its own
    x[1, 50:, 3] = torch.nan
    x[2, :, 4] = 0.1
    x[:, 60, :] = torch.inf
    categorical = torch.tensor([[False, True, True, False, False]]).repeat(3, 1)
    categorical[1, 2] = False
    y = torch.randint(0, 3, (3, 200), generator=g)
    whole = context_statistics(x, y, categorical, num_features=6)
    pieces = context_statistics(x, y, categorical, num_features=6, rows_per_chunk=rows_per_chunk)
    for name, actual, expected in zip(whole._fields, pieces, whole, strict=True):
        assert actual.dtype == expected.dtype, name
        finite = expected.isfinite()
        assert torch.equal(actual.isfinite(), finite), name
        assert_close(actual[finite].double(), expected[finite].double(), CONTRACT, name)


@pytest.mark.parametrize("offset", [1e6, -3e5])
def test_float32_columns_far_from_zero_keep_their_digits(offset):
    """A float32 mean over this many rows is off by more than the deviation of the column."""
    g = torch.Generator().manual_seed(0)
    x = (torch.randn(1, 200_000, 1, generator=g) / 4 + offset).float()
    y, numeric = torch.zeros(1, 200_000, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool)
    by = context_statistics(x, y, numeric, num_features=None, rows_per_chunk=4096)
    truth = x.double()
    z = standardise(x, by).double()
    assert_close(z, (truth - truth.mean()) / truth.std(), 1e-4)
    assert abs(z.mean().item()) < 1e-3


@pytest.mark.parametrize(
    ("dtype", "largest"), [(torch.float32, 3.4e38), (torch.float64, 1.7e308), (torch.float64, 1e90)]
)
def test_the_largest_numbers_of_a_dtype_are_standardised(dtype, largest):
    x = torch.tensor([-1.0, 0.5, 1.0, 0.0], dtype=dtype)[None, :, None] * largest
    y, numeric = torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool)
    for rows_per_chunk in (1, 4):
        by = context_statistics(x, y, numeric, num_features=1, rows_per_chunk=rows_per_chunk)
        z = standardise(x, by)[0, :, 0]
        assert z.isfinite().all()
        assert z[0] < z[3] < z[2]
        assert z.double().std().item() == pytest.approx(1, abs=1e-5)


def test_deviations_too_small_for_float64_make_a_column_constant():
    rows, by = _apply([[0.0], [1e-200]], [[0.0], [1e-200], [5.0]])
    assert np.array_equal(rows, np.zeros((3, 1)))
    assert by.factor.item() == 0


def test_missing_cells_do_not_make_a_constant_column_vary():
    rows, _ = _apply([[0.1], [0.1], [math.nan], [0.1]], [[0.1], [math.nan], [7.0]])
    assert np.array_equal(rows, np.zeros((3, 1)))

"""Features against loops over tasks, rows, columns and trees."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tolerances import RMS, assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from tabicl_linear.ridge_inputs.feature_sets import Part
from tabicl_linear.ridge_inputs.features import CLIP, RidgeFeatures
from tabicl_linear.ridge_inputs.options import KINDS, RidgeOptions

SMALL = RidgeOptions(num_tanh=3, num_cosine=5, num_trees=4, tree_depth=2)
OPTIONS = replace(SMALL, sets=(dict.fromkeys(KINDS, 1.0),))
WIDE = 7
"""Columns that the features are made for; tables here have 4."""
CATEGORICAL = torch.tensor([[False, True, False, False], [True, False, False, True]])


def table(rows: int = 6):
    """Standardised rows, with category codes, and a value beyond the clip."""
    g = torch.Generator().manual_seed(1)
    z = 2 * torch.randn(2, rows, 4, generator=g, dtype=torch.float64)
    codes = torch.randint(0, 3, (2, rows, 4), generator=g).double()
    z = torch.where(CATEGORICAL[:, None], codes, z)
    z[0, 1, 0], z[1, 2, 1] = 30.0, -30.0
    return z


def drawn(features: RidgeFeatures, z: torch.Tensor) -> torch.Tensor:
    columns, rows = features.tree_questions(z.shape[2], z.shape[1])
    return torch.stack([task[rows, columns] for task in z])


def thresholds(features: RidgeFeatures, z: torch.Tensor, categorical=CATEGORICAL) -> torch.Tensor:
    if z.shape[2] > categorical.shape[1]:
        categorical = F.pad(categorical, (0, z.shape[2] - categorical.shape[1]))
    return features.thresholds(drawn(features, z), [z], categorical)


def test_draws_are_those_of_float32_whatever_the_default():
    expected = RidgeFeatures(WIDE, SMALL)
    torch.set_default_dtype(torch.float64)
    try:
        features = RidgeFeatures(WIDE, SMALL)
    finally:
        torch.set_default_dtype(torch.float32)
    for name, draws in expected.named_buffers():
        assert_close(features.get_buffer(name).double(), draws.double(), RMS[torch.float32], name)


def features_of(features: RidgeFeatures, z: torch.Tensor, **changes) -> torch.Tensor:
    given = {
        "thresholds": thresholds(features, z),
        "categorical": CATEGORICAL,
        "num_varying": torch.tensor([4, 3]),
    }
    return features(z, **(given | changes))


def by_hand(features, row, limits, categorical, num_varying) -> list[float]:
    """Features of one row, one after the other."""
    clipped = [min(max(value, -8.0), 8.0) for value in row]
    result = list(clipped)
    result += [(value / (1 + abs(value) / 4)) ** 2 for value in clipped]
    for wave in (1.5, 3.0):
        result += [math.sin(wave * value) for value in clipped]
        result += [math.cos(wave * value) - 1 for value in clipped]
    weights, phase = features.projection.double().tolist(), features.phase.double().tolist()
    for i in range(8):
        projected = sum(value * weights[j][i] for j, value in enumerate(clipped))
        projected = projected / math.sqrt(num_varying) + phase[i]
        result.append(math.tanh(projected) if i < 3 else math.cos(projected))
    columns = features.tree_questions(len(row), 1)[0].tolist()
    for tree in range(4):
        leaf = 0
        for level in range(2):
            question = 2 * tree + level
            column, limit = columns[question], limits[question]
            yes = row[column] == limit if categorical[column] else row[column] >= limit
            leaf += 2**level * yes
        result += [float(i == leaf) for i in range(4)]
    return result


def test_features_are_those_of_a_loop():
    features, z = RidgeFeatures(WIDE, OPTIONS), table()
    limits, varying = thresholds(features, z), [4, 3]
    expected = [
        [
            by_hand(features, row, limits[i].tolist(), CATEGORICAL[i].tolist(), varying[i])
            for row in z[i].tolist()
        ]
        for i in range(2)
    ]
    result = features_of(features, z)
    assert result.dtype == torch.float64
    assert_close(result, torch.tensor(expected, dtype=torch.float64), RMS[torch.float64])


PLACES = {
    "values": slice(0, 24),
    "tanh": slice(24, 27),
    "cosine": slice(27, 32),
    "trees": slice(32, 48),
}
"""Of all kinds, for four columns."""


def test_sets_say_where_their_kinds_stand_and_how_they_weigh():
    sets = ({"values": 2.0, "trees": 0.3}, {"tanh": 1.0}, {"tanh": 3.0, "cosine": 0.1})
    features, z = RidgeFeatures(WIDE, replace(SMALL, sets=sets)), table()
    every = RidgeFeatures(WIDE, OPTIONS)
    assert every.sets(4) == (tuple(Part(place, 1.0) for place in PLACES.values()),)
    result, expected = features_of(features, z), features_of(every, z)
    for kinds, parts in zip(sets, features.sets(4), strict=True):
        for (kind, deviation), part in zip(kinds.items(), parts, strict=True):
            assert torch.equal(result[..., part.place], expected[..., PLACES[kind]]), kind
            assert part.deviation == deviation


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_kinds_of_a_set_are_computed(kind):
    features, z = RidgeFeatures(WIDE, replace(SMALL, sets=({kind: 0.5},))), table()
    (part,) = features.sets(4)[0]
    size = {"values": 24, "tanh": 3, "cosine": 5, "trees": 16}[kind]
    assert part == Part(slice(0, size), 0.5)
    assert part.size == size
    assert features_of(features, z).shape == (2, 6, size)


def test_values_beyond_the_clip_count_as_it_but_for_trees():
    features, z = RidgeFeatures(WIDE, OPTIONS), table()
    trees = PLACES["trees"]
    far, near, limits = z.clone(), z.clone(), thresholds(features, z)
    columns = features.tree_questions(4, 6)[0]
    column = int(columns[0])
    far[:, 0, column], near[:, 0, column] = 90.0, CLIP
    limits[:] = 50.0
    plain = torch.zeros_like(CATEGORICAL)
    one = features_of(features, far, thresholds=limits, categorical=plain)
    other = features_of(features, near, thresholds=limits, categorical=plain)
    assert torch.equal(one[..., : trees.start], other[..., : trees.start])
    assert not torch.equal(one[..., trees], other[..., trees])


def test_every_tree_puts_a_row_into_one_leaf():
    features, z = RidgeFeatures(WIDE, OPTIONS), table(50)
    leaves = features_of(features, z)[..., PLACES["trees"]].unflatten(-1, (4, 4))
    assert (leaves.sum(-1) == 1).all()
    assert (leaves.sum((0, 1)) > 0).sum() > 8, "most leaves have rows"


def test_codes_have_no_order_for_trees_and_numbers_have():
    features, z = RidgeFeatures(WIDE, OPTIONS), table(30)
    z = z.clamp(-2, 2).round()
    trees = PLACES["trees"]
    moved = torch.tensor([0.0, 7.0, 1.0, -3.0, 4.0])[(z + 2).long()].double()
    same = {"num_varying": torch.tensor([4, 4])}
    for categorical, equal in ((torch.ones(2, 4).bool(), True), (torch.zeros(2, 4).bool(), False)):
        one = features_of(features, z, categorical=categorical, **same)
        other = features_of(features, moved, categorical=categorical, **same)
        assert torch.equal(one[..., trees], other[..., trees]) == equal
    grown = features_of(features, z.exp(), categorical=torch.zeros(2, 4).bool(), **same)
    plain = features_of(features, z, categorical=torch.zeros(2, 4).bool(), **same)
    assert torch.equal(grown[..., trees], plain[..., trees]), "any growing function"


def test_a_column_that_does_not_vary_changes_no_projection():
    features, z = RidgeFeatures(WIDE, OPTIONS), table()
    wider = torch.cat([z, torch.zeros(2, 6, 1).double()], -1)
    categorical = torch.cat([CATEGORICAL, torch.zeros(2, 1).bool()], -1)
    one, other = features_of(features, z), features_of(features, wider, categorical=categorical)
    of_narrow, of_wide = features.sets(4)[0], features.sets(5)[0]
    for kind in (1, 2):
        assert_close(
            one[..., of_narrow[kind].place], other[..., of_wide[kind].place], RMS[torch.float64]
        )


def test_a_row_of_no_column_that_varies_has_finite_features():
    features = RidgeFeatures(WIDE, OPTIONS)
    z = torch.zeros(2, 3, 4)
    assert features_of(features, z, num_varying=torch.tensor([0, 0])).isfinite().all()


def test_tables_have_any_number_of_columns_and_rows():
    features = RidgeFeatures(WIDE, RidgeOptions(num_trees=200))
    for num_columns in (1, 3, WIDE):
        for num_rows in (1, 2, 1000, 50_000_000):
            columns, rows = features.tree_questions(num_columns, num_rows)
            assert 0 <= columns.min() <= columns.max() < num_columns
            assert 0 <= rows.min() <= rows.max() < num_rows
            assert len(columns.unique()) == num_columns
    assert len(rows.unique()) > 500


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_trees_ask_the_same_in_any_dtype_of_the_model(dtype):
    for seed in range(5):
        options = RidgeOptions(num_trees=200, seed=seed)
        plain, other = RidgeFeatures(WIDE, options), RidgeFeatures(WIDE, options).to(dtype)
        for mine, its in zip(
            plain.tree_questions(WIDE, 1000), other.tree_questions(WIDE, 1000), strict=True
        ):
            assert torch.equal(mine, its)


def test_draws_are_those_of_the_seed_alone():
    one = RidgeFeatures(WIDE, OPTIONS)
    torch.manual_seed(5)
    torch.rand(3)
    state = torch.get_rng_state()
    again = RidgeFeatures(WIDE, OPTIONS)
    assert torch.equal(torch.get_rng_state(), state)
    other = RidgeFeatures(WIDE, replace(OPTIONS, seed=1))
    for name, buffer in one.named_buffers():
        assert torch.equal(buffer, again.get_buffer(name)), name
        assert not torch.equal(buffer, other.get_buffer(name)), name


def test_draws_are_in_no_file_and_learn_nothing():
    features = RidgeFeatures(WIDE, OPTIONS)
    assert len(list(features.buffers())) == 4
    assert features.state_dict() == {}
    assert list(features.parameters()) == []


def test_draws_are_as_wide_as_they_should_be():
    features = RidgeFeatures(50, RidgeOptions(num_tanh=1000, num_cosine=1000))
    tanh, cosine = features.projection[:, :1000], features.projection[:, 1000:]
    assert tanh.std().item() == pytest.approx(1.5, rel=0.02)
    assert cosine.std().item() == pytest.approx(1.0, rel=0.02)
    assert features.phase[:1000].std().item() == pytest.approx(1.0, rel=0.1)
    assert features.phase[1000:].std().item() == pytest.approx(10.0, rel=0.1)
    assert features.projection.mean().abs() < 0.02


def test_a_model_of_fewer_digits_computes_features_in_those_of_the_rows():
    z, features = table().float(), RidgeFeatures(WIDE, OPTIONS)
    rough = RidgeFeatures(WIDE, OPTIONS).to(torch.bfloat16)
    result = features_of(rough, z)
    assert result.dtype == torch.float32
    trees = PLACES["trees"]
    assert torch.equal(result[..., trees], features_of(features, z)[..., trees])


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_no_setting_rounds_the_projections(precision):
    """Where cosines are of arguments around 30, three digits would be none."""
    products = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func._schema.name in ("aten::mm", "aten::bmm", "aten::addmm"):
                products.append({z.dtype for z in args if isinstance(z, torch.Tensor)})
            return func(*args, **(kwargs or {}))

    rows = torch.randn(1, 50, 6, generator=torch.Generator().manual_seed(0))
    features = RidgeFeatures(6, RidgeOptions())
    told = {
        "thresholds": torch.zeros(1, len(features.tree_columns)),
        "categorical": torch.zeros(1, 6, dtype=torch.bool),
        "num_varying": torch.full((1,), 6),
    }
    expected = features(rows, **told)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        with Products():
            result = features(rows, **told)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(result, expected)
    assert products == [{torch.float64}]


@pytest.mark.parametrize("kinds", [KINDS, ("trees",), ("values", "cosine"), ("tanh", "trees")])
def test_weighted_sums_are_products_of_all_features(kinds):
    options = replace(SMALL, sets=(dict.fromkeys(kinds, 1.0),))
    features, z = RidgeFeatures(WIDE, options), table()
    of_table = {
        "thresholds": thresholds(features, z),
        "categorical": CATEGORICAL,
        "num_varying": torch.tensor([4, 3]),
    }
    wide = features(z, **of_table)
    g = torch.Generator().manual_seed(3)
    weights = torch.randn(2, wide.shape[-1], 3, generator=g, dtype=torch.float64)
    assert_close(features.weighted(z, weights, **of_table), wide @ weights, RMS[torch.float64])
    assert features.weighted(z[:, :0], weights, **of_table).shape == (2, 0, 3)

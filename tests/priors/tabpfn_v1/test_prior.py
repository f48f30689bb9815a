import inspect
import random

import numpy as np
import pytest
import torch
from scipy import stats

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import TabPFNv1Prior, TaskShape

SHARING = ["dataset", "batch"]


def draw(sharing, shape, seed=0):
    return TabPFNv1Prior(sharing).sample_tasks(shape, torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=SHARING)
def many(request):
    """20 batches of 8 tasks with 300 rows and 6 columns."""
    prior, generator = TabPFNv1Prior(request.param), torch.Generator().manual_seed(0)
    shape = TaskShape(8, 300, 100, 6, 10)
    return request.param, [prior.sample_tasks(shape, generator) for _ in range(20)]


@pytest.mark.parametrize("sharing", SHARING)
def test_one_generator_state_gives_one_batch_bit_for_bit(sharing):
    shape = TaskShape(6, 120, 50, 5, 10)
    first, again, other = (draw(sharing, shape, seed) for seed in (3, 3, 4))
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b) or torch.equal(a.isnan(), b.isnan())
    assert torch.equal(first.x.nan_to_num(-9), again.x.nan_to_num(-9))
    assert not torch.equal(first.x.nan_to_num(-9), other.x.nan_to_num(-9))


@pytest.mark.parametrize("sharing", SHARING)
def test_global_generators_are_neither_read_nor_written(sharing):
    states = []
    outcomes = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
        outcomes.append(draw(sharing, TaskShape(4, 100, 50, 5, 10)).x.nan_to_num(-9))
        after = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
        states.append((before, after))
    assert torch.equal(*outcomes)
    for before, after in states:
        assert torch.equal(before[0], after[0])
        assert before[1] == after[1]
        np.testing.assert_equal(before[2], after[2])


def test_shapes_types_and_bounds(many):
    _, batches = many
    for x, y, categorical in batches:
        assert (x.shape, y.shape, categorical.shape) == ((8, 300, 6), (8, 300), (8, 6))
        assert (x.dtype, y.dtype, categorical.dtype) == (torch.float32, torch.int64, torch.bool)
        assert x.is_contiguous()
        assert not x.requires_grad
        assert x[~x.isnan()].abs().max() <= 100
        for labels in y:
            classes = set(labels.tolist())
            assert classes == set(range(len(classes)))
            assert 2 <= len(classes) <= 10


def test_columns_are_standardised_over_all_rows(many):
    _, batches = many
    x = torch.cat([batch.x for batch in batches]).transpose(1, 2).flatten(0, 1)
    x = x[~x.isnan().any(1)].double()
    varied = x[x.std(1) > 1e-3]
    assert len(varied) > 0.95 * len(x)
    inside = varied[varied.abs().amax(1) < 100]
    assert inside.mean(1).abs().median() < 1e-5
    assert (inside.std(1) - 1).abs().median() < 1e-3


def test_missing_cells_are_rare_and_come_in_few_tasks(many):
    _, batches = many
    missing = torch.cat([batch.x for batch in batches]).isnan().float().mean((1, 2))
    assert (missing > 0).float().mean() < 0.12
    assert missing.max() < 0.15


def test_categorical_flags_mark_columns_of_few_values(many):
    _, batches = many
    flagged, plain = [], []
    for x, _, categorical in batches:
        for columns, flags in zip(x.transpose(1, 2), categorical, strict=True):
            for column, flag in zip(columns, flags, strict=True):
                (flagged if flag else plain).append(len(column[~column.isnan()].unique()))
    assert flagged
    # max(round(Gamma(1, 10)), 2) categories are the most: 100 of them have probability e^-10.
    assert max(flagged) <= 100
    assert np.median(flagged) <= 10
    assert np.median(plain) == 300


def test_sharing_is_what_it_says(many):
    sharing, batches = many
    same = [len({tuple(row.tolist()) for row in b.categorical}) == 1 for b in batches]
    with_some = [s for s, b in zip(same, batches, strict=True) if b.categorical.any()]
    assert with_some
    assert all(with_some) if sharing == "batch" else not any(with_some)
    ranked = torch.stack([(b.x.nan_to_num(0).abs().amax((1, 2)) < 1.8) for b in batches])
    mixed = (ranked.any(1) & ~ranked.all(1)).float().mean()
    assert mixed < 0.3 if sharing == "batch" else mixed > 0.7


def test_tasks_of_a_shared_batch_have_rows_of_their_own():
    x, y, _ = draw("batch", TaskShape(8, 200, 100, 5, 10))
    assert len({tuple(row.flatten().tolist()) for row in x}) == 8
    assert len({tuple(row.tolist()) for row in y}) == 8


def test_tasks_of_a_batch_are_independent_with_a_network_each():
    prior, generator = TabPFNv1Prior(), torch.Generator().manual_seed(0)
    shape = TaskShape(40, 60, 50, 2, 10)
    entropy = []
    for _ in range(25):
        _, y, _ = prior.sample_tasks(shape, generator)
        share = torch.stack([torch.bincount(row, minlength=10) for row in y]) / 60
        entropy.append(torch.special.entr(share).sum(1))
    entropy = torch.stack(entropy)
    order = stats.rankdata(entropy.flatten()).reshape(entropy.shape)
    neighbours = np.corrcoef(order[:, 1:].ravel(), order[:, :-1].ravel())[0, 1]
    assert abs(neighbours) < 0.12


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("num_context", [10, 64, 299])
def test_every_class_is_in_the_context_at_any_split(sharing, num_context):
    for seed in range(4):
        _, y, _ = draw(sharing, TaskShape(8, 300, num_context, 4, 10), seed)
        for row in y:
            assert set(row[:num_context].tolist()) == set(row.tolist())
            assert len(set(row.tolist())) >= 2


@pytest.mark.parametrize("sharing", SHARING)
def test_the_split_only_reorders_rows(sharing):
    few, half, many = (draw(sharing, TaskShape(6, 200, c, 4, 10), 5) for c in (10, 100, 199))
    assert not torch.equal(few.y, many.y)
    for other in (half, many):
        assert torch.equal(few.categorical, other.categorical)
        for a, b in zip(_rows(few), _rows(other), strict=True):
            assert sorted(a) == sorted(b)


def _rows(tasks):
    joined = torch.cat([tasks.x.nan_to_num(-999), tasks.y.unsqueeze(-1)], -1)
    return [[tuple(row) for row in task] for task in joined.tolist()]


def test_the_split_leaves_the_generator_in_the_same_state():
    states = []
    for num_context in (10, 150):
        generator = torch.Generator().manual_seed(0)
        TabPFNv1Prior().sample_tasks(TaskShape(4, 200, num_context, 4, 10), generator)
        states.append(generator.get_state())
    assert torch.equal(*states)


def test_class_counts_stay_within_the_shape():
    _, y, _ = draw("dataset", TaskShape(40, 200, 100, 4, 3))
    assert set((y.amax(1) + 1).tolist()) == {2, 3}
    _, y, _ = draw("dataset", TaskShape(20, 200, 100, 4, 2))
    assert (y.amax(1) == 1).all()


def test_about_half_of_the_tasks_have_two_classes():
    counts = []
    for seed in range(6):
        _, y, _ = draw("dataset", TaskShape(100, 300, 100, 5, 10), seed)
        counts.append(y.amax(1) + 1)
    counts = torch.cat(counts)
    # 0.53 before empty classes are dropped and incompatible draws are left out.
    assert (counts == 2).float().mean().item() == pytest.approx(0.55, abs=0.06)
    assert (counts == 10).float().mean() < 0.05


def test_labels_depend_on_the_columns():
    x, y, _ = draw("dataset", TaskShape(60, 400, 300, 5, 2))
    x = x.nan_to_num(0)
    nearest = torch.cdist(x[:, 300:], x[:, :300]).argmin(2)
    accuracy = (y[:, :300].gather(1, nearest) == y[:, 300:]).float().mean(1)
    majority = torch.maximum(y.float().mean(1), 1 - y.float().mean(1))
    assert accuracy.mean() > majority.mean()


def test_small_tables_and_single_columns_work():
    x, y, _ = draw("dataset", TaskShape(5, 4, 3, 1, 2))
    assert x.shape == (5, 4, 1)
    assert (y.sort(1).values == torch.tensor([0, 0, 1, 1])).all()


def test_sample_returns_features_and_labels_of_the_same_draw():
    shape = TaskShape(3, 100, 50, 4, 5)
    x, y = TabPFNv1Prior().sample(shape, torch.Generator().manual_seed(2))
    tasks = draw("dataset", shape, 2)
    assert torch.equal(x.nan_to_num(-9), tasks.x.nan_to_num(-9))
    assert torch.equal(y, tasks.y)


def test_bad_input_is_refused_in_one_line():
    with pytest.raises(DataError, match="num_rows=3"):
        draw("dataset", TaskShape(1, 3, 2, 1, 2))
    with pytest.raises(DataError, match="num_context=5 with num_classes=10"):
        draw("dataset", TaskShape(1, 100, 5, 1, 10))


def test_an_unknown_sharing_is_refused():
    prior = TabPFNv1Prior.__new__(TabPFNv1Prior)
    refuse = inspect.unwrap(TabPFNv1Prior.__init__)  # below the tests' type checks
    with pytest.raises(ConfigError, match='sharing=\'minibatch\': use "dataset" or "batch"\\.'):
        refuse(prior, "minibatch")

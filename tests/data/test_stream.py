"""A batch is a function of (seed, stage, index, rank), whoever draws it."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tabicl_linear.data.stream import FixedBatches, PriorStream, Stage, with_enough_queries
from tabicl_linear.priors import GaussianUniformPrior, TaskShape
from tabicl_linear.priors.shapes import TaskShapes

SHAPES = TaskShapes(batch_size=2, num_rows=30, min_context=12)


def stream(**kwargs):
    settings = {"seed": 0, "stage": Stage.TRAIN, **kwargs}
    return PriorStream(GaussianUniformPrior(), SHAPES, **settings)


def same(one, two):
    return (
        one.index == two.index
        and one.num_context == two.num_context
        and one.x.shape == two.x.shape
        and torch.equal(one.x, two.x)
        and torch.equal(one.y, two.y)
        and torch.equal(one.categorical, two.categorical)
    )


def test_a_batch_is_drawn_again_exactly():
    assert same(stream().batch(7), stream().batch(7))


def test_ranks_share_the_shape_and_differ_in_content():
    first, second = stream(rank=0), stream(rank=1)
    for index in range(20):
        assert first.shape(index) == second.shape(index)
        assert not torch.equal(first.batch(index).x, second.batch(index).x)


@pytest.mark.parametrize("other", [{"seed": 1}, {"stage": Stage.VALIDATE}, {"stage": Stage.TEST}])
def test_seeds_and_stages_are_other_streams(other):
    own, foreign = stream(), stream(**other)
    contents = [own.batch(i).x.sum().item() for i in range(10)]
    assert not set(contents) & {foreign.batch(i).x.sum().item() for i in range(10)}


def test_no_two_seeds_coincide():
    """Plain entropy would: numpy pads it with zeros, and rank 0 would share its shape's seed."""
    keys = [
        stream(stage=s, seed=seed)._seed(*k)
        for seed in (0, 1)
        for s in Stage
        for k in ((0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1))
    ]
    states = {tuple(key.generate_state(2, np.uint64)) for key in keys}
    assert len(states) == len(keys)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_workers_change_neither_batches_nor_order():
    expected = [stream().batch(index) for index in range(5, 12)]
    for workers in (0, 1, 3):
        loader = DataLoader(stream(start=5), batch_size=None, num_workers=workers)
        drawn = list(islice(loader, 7))
        assert [batch.index for batch in drawn] == list(range(5, 12))
        assert all(same(*pair) for pair in zip(expected, drawn, strict=True))


def test_the_stream_has_no_length():
    with pytest.raises(TypeError):
        len(stream())


def test_global_generators_stay_as_they_are():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    stream().batch(3)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_shapes_cover_their_ranges():
    shapes = [stream().shape(index) for index in range(400)]
    assert {s.num_features for s in shapes} == set(range(2, 21))
    assert {s.num_context for s in shapes} == set(range(12, 30))


@given(st.integers(12, 3000), st.integers(1, 2000))
def test_evaluation_shapes_have_enough_queries(num_context, num_queries):
    shape = TaskShape(2, num_context + num_queries, num_context, 5, 10)
    wide = with_enough_queries(shape)
    assert wide.num_rows - wide.num_context >= 100
    assert wide.num_rows >= shape.num_rows
    assert wide.num_context <= shape.num_context
    if num_queries >= 100 and shape.num_rows >= 200:
        assert wide == shape


@given(st.integers(1, 12), st.integers(1, 5))
def test_shares_hold_every_batch_once(num_batches, shares):
    parts = [FixedBatches(stream(), num_batches, (i, shares)) for i in range(shares)]
    indices = [part._indices[i] for part in parts for i in range(len(part))]
    assert sorted(indices) == list(range(num_batches))


def test_fixed_batches_are_kept():
    batches = FixedBatches(stream(stage=Stage.VALIDATE), 3)
    assert len(batches) == 3
    assert batches[1] is batches[1]
    assert same(batches[1], stream(stage=Stage.VALIDATE).batch(1))

"""A context in blocks: who reads which rows, and what comes of their answers."""

from typing import NamedTuple

import pytest
import torch
from tolerances import CONTRACT, assert_close

from tabicl_linear.estimator.learners.blocks import ContextBlocks


class Seen(NamedTuple):
    """A state that keeps the rows it was made of."""

    x: torch.Tensor
    y: torch.Tensor


class Frequencies:
    """Predicts the frequencies of the classes that it has read, whatever the row."""

    max_columns = 7
    device = torch.device("cpu")

    def fit(self, x, y, *, categorical, rows_per_chunk, spill=None, state=None):
        assert (rows_per_chunk, spill) == (100, None)
        assert categorical.shape == (len(x), x.shape[2])
        return Seen(x, y)

    def predict(self, state, x):
        counts = torch.nn.functional.one_hot(state.y, 10).sum(1)
        # A model masks absent classes by such a number, and any row may add a constant.
        logits = torch.where(counts > 0, counts.double().log(), -10_000.0)
        return logits[:, None] + x[..., :1]


def fit(blocks, x, y):
    mask = torch.zeros(len(x), x.shape[2], dtype=torch.bool)
    return blocks.fit(x, y, categorical=mask, rows_per_chunk=100)


@pytest.mark.parametrize(("rows", "num_blocks"), [(30, 2), (31, 3), (9, 9), (50, 1)])
def test_every_row_is_in_one_block_and_each_class_is_spread_evenly(rows, num_blocks):
    generator = torch.Generator().manual_seed(rows)
    y = torch.randint(0, 4, (2, rows), generator=generator)
    x = torch.stack([torch.arange(rows), torch.arange(rows) + 1000]).unsqueeze(-1).double()
    state = fit(ContextBlocks(Frequencies(), num_blocks), x, y)
    assert len(state.blocks) == num_blocks
    for member in range(2):
        order = [block.x[member, :, 0] for block in state.blocks]
        assert torch.equal(torch.cat(order).sort().values, x[member, :, 0])
        assert all((part.diff() > 0).all() for part in order), "rows keep their order"
        lengths = [len(part) for part in order]
        assert max(lengths) - min(lengths) <= 1
        for label in range(4):
            counts = [int((block.y[member] == label).sum()) for block in state.blocks]
            assert max(counts) - min(counts) <= 1
        for block in state.blocks:
            offset = 1000 * member
            assert torch.equal(block.y[member], y[member, block.x[member, :, 0].long() - offset])


def test_the_mean_of_log_probabilities():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (2, 40), generator=generator)
    x = torch.randn(2, 40, 3, generator=generator, dtype=torch.float64)
    queries = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    state = fit(ContextBlocks(Frequencies(), 3), x, y)
    logs = [Frequencies().predict(block, queries).log_softmax(-1) for block in state.blocks]
    actual = ContextBlocks(Frequencies(), 3).predict(state, queries)
    assert_close(actual, torch.stack(logs).mean(0)[..., :3], CONTRACT)


def test_a_class_that_blocks_lack_keeps_its_frequency():
    """Blocks of 25 rows: it is 4 times too frequent where it is, and unknown elsewhere."""
    y = torch.cat([torch.zeros(60), torch.ones(38), torch.tensor([2.0, 3.0])]).long().unsqueeze(0)
    x = torch.randn(1, 100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = fit(ContextBlocks(Frequencies(), 4), x, y)
    logits = ContextBlocks(Frequencies(), 4).predict(state, x[:, :3])
    truth = torch.tensor([0.01, 0.01], dtype=torch.float64).log().expand(3, 2)
    assert_close(logits[0, :, 2:], truth, CONTRACT)
    assert (logits[0, :, :2].exp() - torch.tensor([0.6, 0.38])).abs().max() < 0.01


def test_it_is_as_wide_and_in_the_same_place_as_its_learner():
    blocks = ContextBlocks(Frequencies(), 2)
    assert (blocks.max_columns, blocks.device) == (7, torch.device("cpu"))

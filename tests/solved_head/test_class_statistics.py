"""Sums of classes in columns: against loops over rows, and what a row may know."""

import math

import pytest
import torch
from solved_head.tables import COLUMNS, ROWS, TASKS, context

from experiments.solved_head.class_statistics import (
    BINS,
    FOLDS,
    ClassStatistics,
    class_slots,
    folds,
)
from experiments.solved_head.class_statistics import (
    CLASSES as SLOTS,
)
from tabicl_linear.kernels.state import num_bytes


def test_counts_are_those_of_a_loop():
    rows = context()
    statistics = rows.statistics()
    counts, sums = torch.zeros_like(statistics.counts), torch.zeros_like(statistics.sums)
    for b in range(TASKS):
        for i in range(ROWS):
            for m in range(COLUMNS):
                fold, slot = int(rows.fold[b, i]), int(rows.y[b, i])
                value = float(rows.z[b, i, m])
                edges = statistics.edges[b, m].tolist()
                if not rows.present[b, i, m]:
                    counts[b, fold, m, BINS, slot] += 1
                    continue
                counts[b, fold, m, sum(edge <= value for edge in edges), slot] += 1
                sums[b, fold, m, 0, slot] += value
                sums[b, fold, m, 1, slot] += value**2
    torch.testing.assert_close(statistics.counts, counts, rtol=0, atol=0)
    torch.testing.assert_close(statistics.sums, sums, rtol=1e-12, atol=1e-12)


def test_few_values_have_a_bin_each_and_many_are_cut_evenly():
    rows = context()
    bins = rows.statistics().bins(rows.z, rows.present)
    for task in range(TASKS):
        for column in (1, 2):
            seen = rows.present[task, :, column]
            values, at = rows.z[task, seen, column], bins[task, seen, column]
            pairs = set(zip(values.tolist(), at.tolist(), strict=True))
            assert len(pairs) == len(values.unique()) == len(at.unique())
        seen = rows.present[task, :, 0]
        sizes = torch.bincount(bins[task, seen, 0], minlength=BINS)
        assert sizes.max() - sizes.min() <= math.ceil(ROWS / BINS)
        assert (bins[task][~rows.present[task]] == BINS).all()


def test_parts_of_a_context_add():
    rows, cut = context(), 17
    one, other = rows.rows(slice(None, cut)), rows.rows(slice(cut, None))
    empty = ClassStatistics.empty(rows.z, rows.present, rows.slots)
    statistics = empty.plus(*one[:4]).plus(*other[:4])
    whole = rows.statistics()
    assert torch.equal(statistics.counts, whole.counts)
    torch.testing.assert_close(statistics.sums, whole.sums, rtol=1e-12, atol=1e-12)


def test_rows_of_a_fold_read_all_others():
    rows = context()
    seen = rows.statistics().seen()
    for fold in range(FOLDS):
        others = (rows.fold[0] != fold).nonzero().squeeze(1)
        empty = ClassStatistics.empty(rows.z, rows.present, rows.slots)
        alone = empty.plus(*rows.rows(others)[:4]).counts.sum(1)
        assert torch.equal(seen.counts[:, fold], alone)
    assert torch.equal(seen.counts[:, FOLDS], rows.statistics().counts.sum(1))


@pytest.mark.parametrize("first", [0, 7])
def test_folds_go_by_turns_wherever_a_piece_begins(first):
    assert torch.equal(folds(2, 20)[:, first:], folds(2, 20 - first, first))


def test_frequent_classes_keep_slots_of_their_own():
    few = torch.tensor([[3.0, 9.0, 1.0]])
    assert class_slots(few).tolist() == [[0, 1, 2]]
    labels = torch.arange(1.0, SLOTS + 4)[None]
    slots = class_slots(labels)[0]
    assert slots[-1] == 0
    assert (slots == SLOTS - 1).sum() == 4
    assert slots.unique().tolist() == list(range(SLOTS))


@pytest.mark.parametrize("count", [1, 2])
def test_columns_of_one_row_or_value_have_no_edges(count):
    z = torch.ones(1, count, 1)
    empty = ClassStatistics.empty(z, z > 0, torch.arange(2)[None])
    assert empty.edges.isinf().all()


def test_the_size_does_not_depend_on_rows():
    for rows in (50, 5000):
        z = torch.randn(1, rows, 20)
        empty = ClassStatistics.empty(z, z < torch.inf, torch.arange(10)[None])
        assert num_bytes(empty) == 153_280

import numpy as np
import pytest

from tabicl_linear.priors.tabpfn_v1.compatibility import MAX_TRIES, draw_splits, is_compatible


def literally(rng, counts, split):
    y = np.repeat(np.arange(len(counts)), counts)
    for _ in range(MAX_TRIES):
        y = rng.permutation(y)
        first, second = set(y[:split]), set(y[split:])
        if first == second and len(first) > 1:
            return True
    return False


@pytest.mark.parametrize(
    ("counts", "split"), [([97, 2, 1], 50), ([96, 2, 2], 30), ([10, 4, 3, 3], 10), ([98, 2], 90)]
)
def test_counts_decide_as_reordering_the_rows_does(counts, split):
    rng = np.random.default_rng(0)
    n = 3000
    fast = is_compatible(rng, np.tile(counts, (n, 1)), np.full(n, split)).mean()
    slow = np.mean([literally(rng, counts, split) for _ in range(n)])
    assert fast == pytest.approx(slow, abs=0.04)


def test_one_class_and_no_class_are_never_kept():
    counts = np.array([[100, 0, 0], [0, 0, 0], [50, 0, 50]])
    keep = is_compatible(np.random.default_rng(0), counts, np.full(3, 50))
    assert keep.tolist() == [False, False, True]


def test_splits_lie_between_a_tenth_and_nine_tenths():
    rng = np.random.default_rng(0)
    splits = draw_splits(rng, 20000, 1000)
    assert (splits.min(), splits.max()) == (100, 900)
    assert splits.mean() == pytest.approx(500, abs=6)
    assert draw_splits(rng, 100, 4).min() >= 1
    assert draw_splits(rng, 100, 4).max() <= 3

import numpy as np
import pytest
import torch

from tabicl_linear.priors.trees import target
from tabicl_linear.priors.trees.columns import Nominal
from tabicl_linear.priors.trees.hyperparameters import TargetParameters, draw_target_parameters
from tabicl_linear.priors.trees.target import (
    NUM_VIEWS,
    _finish,
    compare,
    cut,
    draw_classes,
    draw_trees,
    draw_views,
    scaled,
)

ROWS = 600
PLAIN = {
    "num_classes": 3,
    "compared": False,
    "num_trees": 1,
    "depth": 4,
    "num_relevant": 3,
    "focus": 0.0,
    "spread": 1.0,
    "level_scale": 1.0,
    "tree_scale": 1.0,
    "smooth_share": 0.0,
    "smooth_linear": True,
    "noise_std": 0.0,
    "flip_rate": 0.0,
    "concentration": 20.0,
}


def parameters(tasks=1, **fields):
    assert set(fields) <= set(PLAIN)
    return TargetParameters(
        **{name: np.broadcast_to(v, tasks).copy() for name, v in {**PLAIN, **fields}.items()}
    )


def none():
    empty = torch.zeros(0, dtype=torch.int64)
    return Nominal(empty, torch.zeros(0, ROWS, dtype=torch.int64), np.zeros(0, int))


def classes(p, x=None, nominal=None, seed=0):
    tasks = len(p.num_classes)
    generator = torch.Generator().manual_seed(seed)
    if x is None:
        x = torch.randn(tasks, 3, ROWS, generator=generator)
    return draw_classes(x, nominal or none(), p, np.random.default_rng(seed), generator)


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_without_noise_rows_in_the_same_leaves_have_the_same_label(compared, seed):
    """Few levels in each column: rows with the same cells are in the same leaves."""
    x = torch.randint(3, (1, 3, ROWS), generator=torch.Generator().manual_seed(seed)).float()
    y = classes(parameters(compared=compared, num_trees=12), x, seed=seed).flatten()
    cell = (x[0] * torch.tensor([[9], [3], [1]])).sum(0).long()
    for value in cell.unique():
        assert len(y[cell == value].unique()) == 1


def test_noise_and_flips_break_that():
    x = torch.zeros(1, 3, ROWS)
    x[0, 0] = torch.arange(ROWS) % 2
    for noise in ({"noise_std": 1.0}, {"flip_rate": 0.3}):
        y = classes(parameters(num_classes=2, **noise), x).flatten()
        assert len(y[x[0, 0] == 0].unique()) == 2


def test_flips_have_their_rate():
    x = torch.randn(1, 3, ROWS, generator=torch.Generator().manual_seed(0))
    kept, flipped = (
        classes(parameters(num_classes=2, flip_rate=rate), x).flatten() for rate in (0.0, 0.4)
    )
    # Half of the replaced labels of two classes are what they were.
    assert (kept != flipped).float().mean().item() == pytest.approx(0.2, abs=0.05)


def test_cut_shares_follow_the_concentration():
    outputs = torch.randn(200, ROWS, 1, generator=torch.Generator().manual_seed(0))
    spread = []
    for concentration in (1000.0, 0.7):
        p = parameters(200, num_classes=4, concentration=concentration)
        y = cut(outputs, p, np.random.default_rng(0), torch.Generator().manual_seed(0))
        share = torch.stack([row.bincount(minlength=4) for row in y]) / ROWS
        spread.append(share.std().item())
    assert spread[0] < 0.02
    assert spread[1] > 0.15


def test_compare_takes_the_largest_of_the_classes_that_exist():
    outputs = torch.tensor([[[0.0, 1.0, 5.0], [2.0, 1.0, 5.0]]])
    p = parameters(num_classes=2, concentration=1e6)
    y = compare(outputs, p, np.random.default_rng(0), torch.Generator().manual_seed(0))
    assert y.tolist() == [[1, 0]]


def test_scaled_outputs_have_deviation_one_over_a_task():
    outputs = scaled(torch.randn(3, ROWS, 4) * torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]) + 7)
    assert outputs.mean(1).abs().max() < 1e-4
    assert outputs.square().mean((1, 2)).sub(1).abs().max() < 1e-4
    # A constant output stays finite.
    assert not scaled(torch.ones(1, ROWS, 2)).any()


def test_only_relevant_columns_have_weights():
    x = torch.zeros(50, 3, ROWS)
    drawn = draw_views(x, none(), parameters(50, num_relevant=2), torch.Generator().manual_seed(0))
    assert (drawn.weights > 0).sum(1).eq(2).all()


def test_nominal_columns_are_seen_through_random_scores():
    codes = torch.arange(ROWS).remainder(40).unsqueeze(0)
    nominal = Nominal(torch.tensor([1]), codes, np.array([40]))
    x = torch.zeros(1, 3, ROWS)
    drawn = draw_views(x, nominal, parameters(), torch.Generator().manual_seed(0))
    assert drawn.slots.view(3, NUM_VIEWS)[0].eq(0).all()
    views = drawn.values[drawn.slots.view(3, NUM_VIEWS)[1]]
    for view in views:
        assert len(view.unique()) == 40
        # One score a category.
        assert all(len(view[codes[0] == k].unique()) == 1 for k in range(40))
        assert torch.corrcoef(torch.stack([view, codes[0].float()]))[0, 1].abs() < 0.5
    assert drawn.weights.view(3, NUM_VIEWS)[1].gt(0).all()
    assert drawn.weights.view(3, NUM_VIEWS)[0].gt(0).tolist() == [True, False, False]


def test_trees_are_listed_by_falling_depth_then_by_task_and_decay():
    p = parameters(3, num_trees=np.array([3, 1, 5]), depth=np.array([2, 8, 5]), tree_scale=0.5)
    trees = draw_trees(p, np.random.default_rng(0))
    assert np.bincount(trees.task).tolist() == [3, 1, 5]
    assert (np.diff(trees.depth) <= 0).all()
    for depth in np.unique(trees.depth):
        assert (np.diff(trees.task[trees.depth == depth]) >= 0).all()
    assert sorted(trees.scale[trees.task == 2]) == [0.5**k for k in (4, 3, 2, 1, 0)]
    assert set(p.depth[trees.task] - trees.depth) <= {0, 1}


def test_a_smooth_part_is_mixed_in():
    x = torch.randn(1, 3, ROWS, generator=torch.Generator().manual_seed(0))
    steps = classes(parameters(depth=2, num_classes=10), x).unique()
    smooth = classes(parameters(depth=2, num_classes=10, smooth_share=0.6), x).unique()
    assert len(steps) <= 4 < len(smooth)


def test_hyper_parameters_keep_their_ranges():
    p = draw_target_parameters(np.random.default_rng(0), 5000, 7, 10)
    assert set(p.num_classes) == set(range(2, 11))
    assert set(p.depth) == set(range(2, 9))
    assert set(p.num_relevant) == set(range(1, 8))
    assert p.num_trees.min() == 1
    assert (p.num_trees * p.depth).max() <= 128
    assert p.num_trees.max() > 50
    assert 0.3 < (p.noise_std == 0).mean() < 0.4


def test_a_smooth_part_has_its_share():
    """What is not the trees' has deviation 1 times the share."""
    generator = torch.Generator().manual_seed(0)
    p = parameters(smooth_share=0.1)
    x = torch.randn(1, 3, ROWS, generator=generator)
    sums = torch.randn(1, ROWS, 2, generator=generator)
    mixed = _finish(sums, draw_views(x, none(), p, generator), p, generator)
    rest = mixed - 0.9 * scaled(sums)
    assert rest.square().mean().sqrt().item() == pytest.approx(0.1, rel=1e-4)


def test_classes_stay_ordered_in_a_quarter_of_the_tasks(monkeypatch):
    """Each task with a probability of its own, of at most a half."""
    asked = []

    def remember(ids, num_ids, ordered, *, generator):
        asked.append(ordered)
        return ids.long()

    monkeypatch.setattr(target.classes, "randomise_ids", remember)
    outputs = torch.randn(500, 20, 1, generator=torch.Generator().manual_seed(0))
    cut(outputs, parameters(500), np.random.default_rng(0), torch.Generator().manual_seed(0))
    (ordered,) = asked
    assert 0 <= ordered.min() < 0.02
    assert 0.48 < ordered.max() <= 0.5

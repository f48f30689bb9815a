import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import TaskShape, TreePrior


def draw(shape, seed=0, **arguments):
    return TreePrior(**arguments).sample_tasks(shape, torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def many():
    return draw(TaskShape(200, 300, 150, 6, 10))


def test_tasks_are_of_all_kinds(many):
    x, y, categorical = many
    classes = y.amax(1) + 1
    assert set(classes.tolist()) == set(range(2, 11))
    assert 0.4 < (classes == 2).float().mean() < 0.65
    assert 0.2 < categorical.float().mean() < 0.4
    majority = torch.stack([row.bincount().max() for row in y]) / 300
    assert majority.max() <= 0.98
    assert majority.min() < 0.3
    assert (majority > 0.8).float().mean() > 0.02
    assert not x.isnan().any()


def test_nominal_columns_hold_codes_and_others_z_scores(many):
    x, _, categorical = many
    columns = x.transpose(1, 2)
    codes = columns[categorical]
    assert torch.equal(codes, codes.round())
    assert codes.min() == 0
    assert 20 < codes.max() < 256
    numeric = columns[~categorical]
    assert numeric.mean(1).abs().max() < 1e-3
    assert numeric.abs().max() <= 100


def test_the_number_of_categories_is_bounded():
    x, _, categorical = draw(TaskShape(50, 300, 150, 6, 10), max_categories=3)
    codes = x.transpose(1, 2)[categorical]
    assert set(codes.unique().tolist()) == {0, 1, 2}
    for wrong in (1, 2**24 + 1):  # more have no code of their own in float32
        with pytest.raises(ConfigError, match=f"max_categories={wrong}: use 2 to 16777216"):
            TreePrior(max_categories=wrong)


def test_the_split_only_reorders_rows():
    few, most = (draw(TaskShape(6, 50, c, 3, 3)) for c in (5, 49))
    for a, b in zip(*(torch.cat([t.x, t.y.unsqueeze(-1)], -1) for t in (few, most)), strict=True):
        assert sorted(a.tolist()) == sorted(b.tolist())


def test_two_rows_of_context_are_enough():
    x, y, _ = draw(TaskShape(100, 3, 2, 1, 2))
    assert x.isfinite().all()
    assert (y[:, :2].sum(1) == 1).all()


def test_a_shape_that_makes_no_task_is_refused():
    with pytest.raises(DataError, match="num_context=5 with num_classes=10"):
        draw(TaskShape(1, 50, 5, 3, 10))


def test_a_forest_beats_a_linear_model_on_most_tasks_and_tasks_differ_in_difficulty():
    tasks = draw(TaskShape(24, 500, 350, 6, 4), seed=1)
    scores = []
    for x, y, _ in zip(*(field.numpy() for field in tasks), strict=True):
        x = (x - x.mean(0)) / (x.std(0) + 1e-6)
        models = RandomForestClassifier(30, random_state=0), LogisticRegression(max_iter=50)
        scores.append([m.fit(x[:350], y[:350]).score(x[350:], y[350:]) for m in models])
    forest, linear = np.array(scores).T
    assert (forest > linear).mean() > 0.65
    assert (forest - linear).mean() > 0.06
    assert forest.max() > 0.95
    assert forest.min() < 0.65

import pytest
import torch
from command_line import SMALL

from tabicl_linear.config import build_data
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import (
    GaussianUniformPrior,
    Prior,
    TabPFNv1Prior,
    TaskShape,
    TreePrior,
    WithTableEffects,
)

NONE = {
    "irrelevant": 0.0,
    "redundant": 0.0,
    "identifiers": 0.0,
    "imbalanced": 0.0,
    "distorted": 0.0,
    "recoded": 0.0,
    "missing": 0.0,
}
SHAPE = TaskShape(16, 200, 100, 6, 4)


class Asked(Prior):
    """Remembers the shapes and the tasks of a prior."""

    def __init__(self, prior):
        self.prior = prior
        self.shapes = []
        self.tasks = []

    def sample_tasks(self, shape, generator):
        tasks = self.prior.sample_tasks(shape, generator)
        self.shapes.append(shape)
        self.tasks.append(tuple(field.clone() for field in tasks))
        return tasks


def draw(inner, shape=SHAPE, seed=0, **effects):
    prior = WithTableEffects(inner, **{**NONE, **effects})
    return prior.sample_tasks(shape, torch.Generator().manual_seed(seed))


def test_without_effects_tasks_are_the_prior_s():
    inner = Asked(TabPFNv1Prior())
    tasks = draw(inner)
    assert inner.shapes == [SHAPE]
    for ours, theirs in zip(tasks, inner.tasks[0], strict=True):
        assert torch.equal(ours.nan_to_num(-9), theirs.nan_to_num(-9))


@pytest.mark.parametrize("effect", ["irrelevant", "redundant", "identifiers"])
def test_extra_columns_take_the_place_of_others(effect):
    inner = Asked(GaussianUniformPrior())
    for seed in range(20):
        assert draw(inner, seed=seed, **{effect: 1.0}).x.shape == (16, 200, 6)
    asked = {shape.num_features for shape in inner.shapes}
    assert max(asked) == 5
    assert min(asked) >= 3
    assert len(asked) > 1


def test_the_columns_of_the_prior_are_all_there():
    inner = Asked(GaussianUniformPrior())
    for seed in range(5):
        x, y, _ = draw(inner, seed=seed, irrelevant=1.0, redundant=1.0, identifiers=1.0)
        theirs, labels, _ = inner.tasks[-1]
        assert torch.equal(y, labels)
        distance = (x[..., None, :] - theirs[..., None]).abs().amax(1)
        assert distance.amin(2).eq(0).all()


def test_one_column_stays_one_that_matters():
    inner = Asked(GaussianUniformPrior())
    shape = SHAPE._replace(num_features=1)
    draw(inner, shape, irrelevant=1.0, redundant=1.0, identifiers=1.0)
    assert inner.shapes == [shape]


def test_imbalance_keeps_rows_of_the_prior():
    inner = Asked(GaussianUniformPrior())
    tasks = draw(inner, imbalanced=1.0)
    assert inner.shapes == [SHAPE._replace(num_rows=300)]
    theirs = inner.tasks[0][0]
    for ours, all_rows in zip(tasks.x, theirs, strict=True):
        result = {tuple(row) for row in ours.tolist()}
        assert len(result) == 200
        assert result <= {tuple(row) for row in all_rows.tolist()}


def test_changes_reach_the_share_of_tasks_asked_for():
    shape = SHAPE._replace(batch_size=300, num_rows=40, num_context=20)
    x, _, _ = draw(GaussianUniformPrior(), shape, missing=0.4)
    affected = x.isnan().any(1).any(1).float().mean().item()
    assert affected == pytest.approx(0.4 * 0.85, abs=0.1)


def test_labels_are_untouched_by_changes_of_cells():
    inner = Asked(TreePrior())
    tasks = draw(inner, distorted=1.0, recoded=1.0, missing=1.0)
    assert torch.equal(tasks.y, inner.tasks[0][1])
    assert torch.equal(tasks.categorical, inner.tasks[0][2])
    assert not torch.equal(tasks.x.nan_to_num(-9), inner.tasks[0][0])


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
@pytest.mark.parametrize("name", [*NONE, "informative"])
def test_what_is_no_probability_is_refused_in_one_line(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value}: a probability") as error:
        WithTableEffects(**{name: value})
    assert "\n" not in str(error.value)


class Silent(Prior):
    """Does not say which columns are categorical."""

    def sample_tasks(self, shape, generator):
        return GaussianUniformPrior().sample_tasks(shape, generator)._replace(categorical=None)


@pytest.mark.parametrize("effects", [{}, {"irrelevant": 1.0}, {"imbalanced": 1.0}])
def test_a_prior_without_column_kinds_is_refused_in_one_line(effects):
    with pytest.raises(DataError, match="Silent gives categorical of NoneType") as error:
        draw(Silent(), **effects)
    assert "\n" not in str(error.value)


def test_it_is_named_in_a_config(tmp_path):
    path = tmp_path / "effects.yaml"
    path.write_text("""
data:
  prior:
    class_path: tabicl_linear.priors.WithTableEffects
    init_args:
      prior: {class_path: tabicl_linear.priors.TreePrior}
      missing: 0.75
""")
    prior = build_data(path, overrides=SMALL).prior
    assert isinstance(prior, WithTableEffects)
    assert isinstance(prior.prior, TreePrior)
    assert prior.missing == 0.75

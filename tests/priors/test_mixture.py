import pytest
import torch
from command_line import CONFIGS, SMALL

from tabicl_linear.config import build_data
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import (
    GaussianUniformPrior,
    Mixture,
    Prior,
    Tasks,
    TaskShape,
    TreePrior,
    WithTableEffects,
)

SHAPE = TaskShape(400, 12, 6, 2, 3)


class Constant(Prior):
    """Fills its tables with one number, and says so in the labels of its columns."""

    def __init__(self, number, *, kinds=True):
        self.number = number
        self.kinds = kinds
        self.asked = []

    def sample_tasks(self, shape, generator):
        b, n, _, m, _ = shape
        self.asked.append(b)
        x = torch.full((b, n, m), float(self.number))
        kinds = torch.full((b, m), bool(self.number)) if self.kinds else None
        return Tasks(x, torch.arange(n).expand(b, -1) % 2, kinds)


def draw(prior, shape=SHAPE, seed=0):
    return prior.sample_tasks(shape, torch.Generator().manual_seed(seed))


def test_tasks_come_from_the_priors_by_their_weights():
    tasks = draw(Mixture([Constant(0), Constant(1)], [0.25, 0.75]))
    assert tasks.x[:, 0, 0].mean().item() == pytest.approx(0.75, abs=0.08)
    assert tasks.categorical.all(1).eq(tasks.x[:, 0, 0].bool()).all()
    assert tasks.x.eq(tasks.x[:, :1, :1]).all()


def test_tasks_of_the_priors_are_mixed_in_a_batch():
    owner = draw(Mixture([Constant(0), Constant(1)])).x[:, 0, 0]
    assert (owner[1:] != owner[:-1]).float().mean().item() == pytest.approx(0.5, abs=0.1)


def test_each_prior_is_asked_once_for_what_it_draws():
    priors = [Constant(0), Constant(1), Constant(1)]
    draw(Mixture(priors, [0.5, 0.5, 0.0]))
    assert [len(prior.asked) for prior in priors] == [1, 1, 0]
    assert sum(priors[0].asked + priors[1].asked) == SHAPE.batch_size


def test_a_mixture_of_one_draws_that_prior_s_tasks():
    shape = TaskShape(4, 50, 20, 3, 3)
    x, y, _ = draw(Mixture([GaussianUniformPrior()]), shape)
    assert x.std().item() == pytest.approx(1, abs=0.1)
    assert y.max() == 2


def test_mixtures_nest():
    inner = Mixture([Constant(1), Constant(2)])
    owner = draw(Mixture([Constant(0), inner], [0.5, 0.5])).x[:, 0, 0]
    assert owner.unique().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("priors", "weights", "message"),
    [
        ([], None, "priors=\\[\\]: give at least one"),
        ([Constant(0)], [0.5, 0.5], "weights=\\[0.5, 0.5\\] for 1 priors"),
        ([Constant(0), Constant(1)], [1.5, -0.5], "-0.5\\]: use weights of at least 0"),
        ([Constant(0), Constant(1)], [0.5, 0.6], "sum to 1.1"),
        ([Constant(0), Constant(1)], [0.5, float("nan")], "nan"),
        ([Constant(0), Constant(1)], [float("inf"), 0.5], "sum to inf"),
    ],
)
def test_weights_that_are_none_are_refused_in_one_line(priors, weights, message):
    with pytest.raises(ConfigError, match=message) as error:
        Mixture(priors, weights)
    assert "\n" not in str(error.value)


def test_a_prior_without_column_kinds_is_refused_in_one_line():
    with pytest.raises(DataError, match="Constant gives categorical of NoneType") as error:
        draw(Mixture([Constant(0, kinds=False), Constant(1)]))
    assert "\n" not in str(error.value)


def test_it_is_named_in_a_config(tmp_path):
    path = tmp_path / "mixture.yaml"
    path.write_text("""
data:
  prior:
    class_path: tabicl_linear.priors.Mixture
    init_args:
      priors:
      - class_path: tabicl_linear.priors.TabPFNv1Prior
        init_args: {sharing: batch}
      - class_path: tabicl_linear.priors.TreePrior
        init_args: {max_categories: 7}
      weights: [0.4, 0.6]
""")
    prior = build_data(path, overrides=SMALL).prior
    assert isinstance(prior, Mixture)
    assert prior.weights == [0.4, 0.6]
    assert prior.priors[0].sharing == "batch"
    assert isinstance(prior.priors[1], TreePrior)
    assert prior.priors[1].max_categories == 7


def test_a_bad_weight_in_a_config_is_one_line(tmp_path):
    path = tmp_path / "mixture.yaml"
    path.write_text(
        "data: {prior: {class_path: tabicl_linear.priors.Mixture, init_args: {weights: [1, 1]}}}"
    )
    with pytest.raises(ConfigError, match="sum to 2") as error:
        build_data(path, overrides=SMALL)
    assert "\n" not in str(error.value)


def test_the_overlay_of_the_default_weights_is_half_networks_and_half_trees():
    prior = build_data(CONFIGS / "prior" / "mixture.yaml", overrides=SMALL).prior
    assert isinstance(prior, WithTableEffects)
    assert isinstance(prior.prior, Mixture)
    assert [type(part).__name__ for part in prior.prior.priors] == ["TabPFNv1Prior", "TreePrior"]
    assert prior.prior.priors[0].sharing == "dataset"
    assert prior.prior.weights == [0.5, 0.5]


def test_the_overlay_of_trees_is_the_tree_prior():
    prior = build_data(CONFIGS / "prior" / "trees.yaml", overrides=SMALL).prior
    assert isinstance(prior, TreePrior)
    assert prior.max_categories == 256

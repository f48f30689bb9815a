"""Which seeds count where, and what resuming continues."""

from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from tabicl_linear.data.datamodule import PriorDataModule
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.priors import (
    GaussianUniformPrior,
    Mixture,
    Prior,
    TabPFNv1Prior,
    WithTableEffects,
)
from tabicl_linear.priors.shapes import TaskShapes

SHAPES = TaskShapes(batch_size=2, num_rows=40, min_context=12)


def data(**kwargs):
    return PriorDataModule(GaussianUniformPrior(), SHAPES, val_batches=3, test_batches=3, **kwargs)


def contents(loader, count=3):
    return [batch.x for batch in islice(loader, count)]


def equal(one, two):
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_runs_of_all_seeds_are_scored_on_the_same_tasks():
    first, second = data(seed=0), data(seed=1)
    assert equal(contents(first.val_dataloader()), contents(second.val_dataloader()))
    assert equal(contents(first.test_dataloader()), contents(second.test_dataloader()))
    assert not equal(contents(first.train_dataloader()), contents(second.train_dataloader()))


@pytest.mark.parametrize("repeats", [True, False])
def test_a_prior_whose_draws_depend_on_earlier_ones_is_refused(repeats):
    class Drifting(Prior):
        scale = 1.0

        def sample_tasks(self, shape, generator):
            self.scale += not repeats
            tasks = GaussianUniformPrior().sample_tasks(shape, generator)
            return tasks._replace(x=tasks.x * self.scale)

    module = PriorDataModule(Drifting(), SHAPES)
    if repeats:
        module.train_dataloader()
        return
    with pytest.raises(DataError, match="Drifting draws two different tasks from one seed"):
        module.train_dataloader()


def test_the_three_sets_are_disjoint():
    module = data()
    loaders = module.train_dataloader(), module.val_dataloader(), module.test_dataloader()
    sums = [x.sum().item() for loader in loaders for x in contents(loader)]
    assert len(set(sums)) == 9


def test_every_validation_pass_sees_the_same_tasks():
    module = data()
    first, second = list(module.val_dataloader()), list(module.val_dataloader())
    assert len(first) == 3
    assert all(a.x is b.x for a, b in zip(first, second, strict=True))


def test_evaluation_batches_have_enough_queries():
    for batch in data().val_dataloader():
        assert batch.x.shape[1] - batch.num_context >= 100


def test_a_loaded_state_continues_the_stream():
    module, resumed = data(), data()
    resumed.load_state_dict({"next_index": 4})
    assert resumed.state_dict() == {"next_index": 4}
    expected = contents(module.train_dataloader(), 7)[4:]
    assert equal(expected, contents(resumed.train_dataloader()))


def test_another_rank_s_batch_can_be_drawn():
    module = data()
    assert not torch.equal(
        module.stream("train").batch(2).x, module.stream("train", rank=1).batch(2).x
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"num_workers": -1}, "num_workers=-1"),
        ({"device": "cuda", "num_workers": 2}, "data.num_workers=0"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        data(**options)


@pytest.mark.parametrize("weights", [[0.0, 1.0], [0.01, 0.99]])
def test_rows_of_a_late_stage_that_the_prior_cannot_draw_are_refused_at_once(weights):
    """Not at that stage, or at the first task that a mixture takes from the prior that cannot."""
    prior = WithTableEffects(Mixture([TabPFNv1Prior(), GaussianUniformPrior()], weights))
    shapes = TaskShapes(num_rows=40, min_context=2, max_classes=2, stages={400_000: 3})
    if weights[0] == 0:
        assert PriorDataModule(prior, shapes).shapes is shapes
    else:
        with pytest.raises(ConfigError, match=r"num_rows=3, in a stage .*at least 4 rows"):
            PriorDataModule(prior, shapes)


@pytest.mark.parametrize("stage", ["val", "test"])
def test_every_process_has_a_batch_to_score(stage):
    """The sets have three batches."""
    module = data()
    loader = getattr(module, f"{stage}_dataloader")
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    module.trainer = SimpleNamespace(global_rank=2, world_size=4, strategy=strategy)
    with pytest.raises(ConfigError, match=f"data.{stage}_batches=3 with 4 processes.*at least 4"):
        loader()
    module.trainer.world_size = 3
    assert [batch.index for batch in loader()] == [2]


def test_drawing_on_a_missing_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="use auto or cpu"):
        data(device="cuda")


@pytest.mark.parametrize(
    ("options", "root", "pinned"),
    [
        ({"num_workers": 1}, "cuda", True),
        ({"device": "cpu"}, "cuda", True),
        ({}, "cuda", False),  # drawn where training runs
        ({}, "cpu", False),
    ],
)
def test_batches_that_go_to_a_gpu_are_in_page_locked_memory(options, root, pinned):
    module = data(**options)
    strategy = SimpleNamespace(root_device=torch.device(root))
    module.trainer = SimpleNamespace(
        strategy=strategy, global_rank=0, world_size=1, overfit_batches=0
    )
    assert module.train_dataloader().pin_memory is pinned
    assert module.val_dataloader().pin_memory is (root == "cuda")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_a_gpu_copies_while_the_host_goes_on(monkeypatch, kind):
    module, told = data(), []
    batch = module.stream("validate").batch(0)
    monkeypatch.setattr(type(batch), "to", lambda self, *args, **how: told.append((args, how)))
    module.transfer_batch_to_device(batch, torch.device(kind), 0)
    assert told == [((torch.device(kind),), {"non_blocking": kind == "cuda"})]

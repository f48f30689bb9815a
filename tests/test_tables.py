"""Tasks that are trained without the predictions of ridge regressions."""

from dataclasses import replace

import pytest
import torch
from tolerances import RMS, assert_close

from tabicl_linear.architecture import Architecture
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import Causal, FinalState
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.strategies.combined import Combined

OPTIONS = RidgeOptions(num_tanh=8, num_cosine=8, num_trees=3, tree_depth=2)
SMALL = Architecture(
    dim=32, num_heads=2, depth=1, num_features=6, num_classes=4, hidden_dim=8, decoder_dim=8
)


def model(dropout=0.0, readout=FinalState, **others):
    torch.manual_seed(0)
    options = replace(OPTIONS, dropout=dropout, **others)
    built = InContextModel.from_parts(
        DeltaNet, readout, Combined(), replace(SMALL, ridge_inputs=options)
    ).double()
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return built


def batch(index, tasks=64):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(tasks, 20, 5, generator=generator, dtype=torch.float64)
    y = (x[..., 0] > 0).long() + (x[..., 1] > 0).long()
    categorical = torch.zeros(tasks, 5, dtype=torch.bool)
    return TaskBatch(x, y, categorical, num_context=15, index=index)


def predictions(built, tasks):
    rows = slice(None), slice(None, tasks.num_context)
    statistics = built.statistics(tasks.x[rows], tasks.y[rows], tasks.categorical)
    return built.tables(statistics).training_predictions(tasks)


def test_a_task_keeps_its_predictions_or_is_told_the_class_shares():
    whole, half = (predictions(model(share), batch(1)) for share in (0.0, 0.5))
    shares = half.prior.unsqueeze(2).expand_as(half.shares)
    dropped = (half.shares == shares).flatten(1).all(1)
    assert 16 <= dropped.sum() <= 48
    for kept, mine in zip(whole, half, strict=True):
        # Not to the bit: fewer tasks are solved side by side.
        assert_close(mine[~dropped], kept[~dropped], RMS[torch.float64])
    assert torch.equal(half.errors[dropped], torch.ones_like(half.errors[dropped]))
    assert torch.equal(half.scores[dropped], half.prior[dropped])
    assert_close(half.mixed()[dropped], shares[dropped].mean(2), RMS[torch.float64])


def test_which_tasks_depends_on_the_batch_alone():
    first, again, other = (predictions(model(0.5), batch(index)) for index in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.shares, other.shares)


def test_fitting_and_predicting_are_untouched():
    tasks = batch(1)
    x, queries = tasks.x.tensor_split([15], dim=1)
    logits = [
        built.predict(built.fit(x, tasks.y[:, :15]), queries) for built in map(model, (0.0, 1.0))
    ]
    assert torch.equal(*logits)
    assert not torch.equal(model(0.0)(tasks), model(1.0)(tasks))


@pytest.mark.parametrize(
    ("form", "readout"), [("leave_one_out", FinalState), ("earlier_rows", Causal)]
)
def test_a_model_that_is_shown_class_shares_is_one_in_training_without_predictions(form, readout):
    tasks = batch(1, tasks=3)
    x, queries = tasks.x.tensor_split([15], dim=1)
    built = model(shown="class_shares", form=form, readout=readout)
    trained = model(1.0, form=form, readout=readout)(tasks)
    assert_close(built(tasks), trained, RMS[torch.float64])
    assert_close(built.predict(built.fit(x, tasks.y[:, :15]), queries), trained, RMS[torch.float64])
    assert not torch.equal(model(form=form, readout=readout)(tasks), trained)

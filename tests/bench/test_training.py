"""The step that is timed is the one that trains."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from torch.utils.data import DataLoader, Dataset

from tabicl_linear.bench.training import make_trainer, noise, within_training
from tabicl_linear.config import build_task
from tabicl_linear.training.noise import without_noise

CPU = torch.device("cpu")
CONFIG = Path(__file__).parents[2] / "configs" / "deltanet.yaml"
SMALL = [
    *(f"model.architecture.{name}=32" for name in ("dim", "hidden_dim", "decoder_dim")),
    "model.architecture.depth=2",
]


def trained(**options):
    """Parameters and losses after three steps on one batch."""
    task = build_task(CONFIG, overrides=SMALL)
    batch = noise(2, 48, 20, 10, CPU)

    def work(step):
        return [float(step(batch)) for _ in range(3)]

    losses = within_training(task, work, device=CPU, **options)
    return [p.detach().clone() for p in task.parameters()], losses


class Same(Dataset):
    """The same batch again and again."""

    def __init__(self, batch):
        self.batch = batch

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return self.batch


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_it_trains_as_a_run_of_the_trainer_does(precision):
    parameters, losses = trained(precision=precision)
    task = build_task(CONFIG, overrides=SMALL)
    batch = noise(2, 48, 20, 10, CPU)
    data = DataLoader(Same(batch), batch_size=None)
    trainer = make_trainer(CPU, precision, Callback(), clipping=1.0)
    trainer.fit_loop.max_epochs = 1  # of three batches
    with without_noise():
        trainer.fit(task, data, data)
    assert len(losses) == 3
    assert losses[0] > losses[-1]
    for ours, theirs in zip(parameters, task.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_clipping_is_part_of_the_step():
    clipped, _ = trained(clipping=1e-12)
    free, _ = trained(clipping=None)
    assert not all(map(torch.equal, clipped, free))

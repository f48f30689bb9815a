"""A tiny model that has learnt to classify clusters: enough for tests that need sensible answers.

Training takes some ten seconds, so its weights are kept. They are made anew from fixed seeds, after
a change of its parameters, by

OMP_NUM_THREADS=1 PYTHONPATH=.:tests .venv/bin/python -m tiny_model
"""

from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from tabicl_linear import recipe as recipes
from tabicl_linear.data.batch import TaskBatch

WEIGHTS = Path(__file__).parent / "golden" / "tiny_model.safetensors"
RECIPE = {
    "mixer": {
        "class_path": "tabicl_linear.mixers.delta.DeltaNet",
        "init_args": {"decay_constant": 256.0},
    },
    "readout": {"class_path": "tabicl_linear.readouts.FinalState", "init_args": {}},
    "strategy": {"class_path": "tabicl_linear.strategies.combined.Combined", "init_args": {}},
    "architecture": {
        "dim": 32,
        "num_heads": 2,
        "depth": 2,
        "num_features": 20,
        "num_classes": 10,
        "hidden_dim": 64,
        "decoder_dim": 64,
    },
}
PROVENANCE = {"trained_rows": [96, 1000], "steps": 0}
STEPS = 350
CONTEXT = 48
CLASSES = (2, 3, 3, 4, 6, 10)


def untrained(seed: int = 0, readout: str = "FinalState", **architecture):
    """A model of the recipe with seeded initial weights."""
    recipe = RECIPE | {
        "readout": {"class_path": f"tabicl_linear.readouts.{readout}", "init_args": {}},
        "architecture": RECIPE["architecture"] | architecture,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return recipes.build(recipe).eval()


@cache
def trained():
    """The model after a short training on clusters. Do not change it."""
    model = untrained()
    model.load_state_dict(load_file(WEIGHTS))
    return model


def _train(model):
    model.train()
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(STEPS):
        batch = _clusters(generator, index=step)
        targets = batch.y[:, CONTEXT:]
        loss = cross_entropy(model(batch).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def save(model, path: Path, recipe=RECIPE) -> Path:
    """Write a file that `load_model` reads."""
    torch.save(
        {
            "state_dict": {f"model.{name}": value for name, value in model.state_dict().items()},
            "hyper_parameters": recipe,
            "provenance": PROVENANCE,
        },
        path,
    )
    return path


def _clusters(generator: torch.Generator, *, index: int, tasks: int = 16) -> TaskBatch:
    """Gaussian clusters, one or two for each class, in 1 to 20 columns."""

    def draw(low: int, high: int, shape: tuple[int, ...] = ()) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    num_classes = CLASSES[int(draw(0, len(CLASSES)))]
    num_columns = min(int(draw(1, 6)) * int(draw(1, 5)), 20)
    rows = 2 * CONTEXT
    y = draw(0, num_classes, (tasks, rows))
    y[:, :num_classes] = torch.arange(num_classes)
    centre = 2 * torch.randn(tasks, 2 * num_classes, num_columns, generator=generator)
    cluster = y + num_classes * draw(0, 2, (tasks, 1)) * draw(0, 2, (tasks, rows))
    noise = torch.randn(tasks, rows, num_columns, generator=generator)
    x = centre.gather(1, cluster.unsqueeze(-1).expand(-1, -1, num_columns)) + noise
    return TaskBatch(x, y, torch.zeros(tasks, num_columns, dtype=torch.bool), CONTEXT, index)


if __name__ == "__main__":
    model = untrained()
    _train(model)
    save_file(model.state_dict(), WEIGHTS)

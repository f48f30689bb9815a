"""The recorder of the matrix products of a training step."""

from pathlib import Path

import torch
from torch import nn

from tabicl_linear.bench.train import DENSE, cases, draw_batch
from tabicl_linear.bench.training import DenseProducts, flops, within_training
from tabicl_linear.config import build_task

CPU = torch.device("cpu")
CONFIG = Path(__file__).parents[2] / "configs" / "deltanet.yaml"


def test_flops_of_a_known_network_forward_and_backward():
    network = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3, bias=False))
    x = torch.randn(2, 11, 5)
    with DenseProducts() as recorder:
        network(x).sum().backward()
    # Forward, and the gradient of each weight; the gradient of the input for the second alone.
    first, second = 2 * 22 * 5 * 7, 2 * 22 * 7 * 3
    assert flops(recorder.replay(CPU)) == 2 * first + 3 * second


def test_batched_products_are_not_dense_and_nothing_is_recorded_outside():
    x = torch.randn(3, 4, 5)
    with DenseProducts() as recorder:
        x @ x.transpose(-1, -2)
        torch.baddbmm(torch.zeros(3, 4, 4), x, x.transpose(-1, -2))
    x[0] @ x[1].T
    assert recorder.products == []


def test_dtypes_under_autocast_are_those_of_the_products():
    layer = nn.Linear(8, 8)
    with DenseProducts() as recorder, torch.autocast("cpu", torch.bfloat16):
        loss = layer(torch.randn(4, 8)).sum()
    with recorder:
        loss.backward()
    assert [layout[2] for pair in recorder.products for layout in pair] == [torch.bfloat16] * 4


def test_replay_computes_the_same_products():
    left, right = torch.randn(6, 4), torch.randn(3, 4).T
    with DenseProducts() as recorder:
        left @ right
    with DenseProducts() as again:
        recorder.replay(CPU)()
    assert again.products == recorder.products
    layouts = ((6, 4), (4, 1), torch.float32), ((4, 3), (1, 4), torch.float32)
    assert recorder.products == [layouts]


def test_a_training_step_records_all_its_dense_layers():
    """Every weight matrix for every token: once forward, twice backward."""
    dim, hidden, tokens, queries = 16, 32, 2 * 40, 2 * 20
    overrides = [
        *(f"model.architecture.{name}={dim}" for name in ("dim", "decoder_dim")),
        *("model.architecture.depth=2", "model.architecture.num_heads=2"),
        *(f"model.architecture.hidden_dim={hidden}", "data.shapes.batch_size=2"),
        *("data.shapes.num_rows=40", "data.shapes.min_context=16"),
    ]
    batch = draw_batch([CONFIG], overrides, CPU)
    assert batch.x.shape == (2, 40, 20)
    assert batch.num_context == 20
    task = build_task(CONFIG, overrides=overrides)
    field = within_training(
        task,
        lambda step: cases(task, step, batch, "float32", compile_dense=False),
        device=CPU,
    )
    assert field[-1].key == ("float32", DENSE)
    recorded = field[-1].flops
    mixing, after = dim * (3 * dim + 2), dim * dim + 3 * dim * hidden
    head = 6 * queries * (dim * dim + dim * 10)
    # The input has no gradient; psi_y is also asked for a placeholder per task.
    embedding = 4 * (tokens * (20 * dim + dim) + 2 * dim)
    everything = 6 * tokens * 2 * (mixing + after) + head + embedding
    # What the last block makes of context tokens leads nowhere: no gradient, at best no work.
    idle = (tokens - queries) * after
    assert everything - 6 * idle <= recorded <= everything - 4 * idle

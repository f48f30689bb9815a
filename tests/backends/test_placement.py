"""A model has the kernels for the device and dtype of its parameters at all times."""

import copy
import pickle
from functools import partial

import pytest
import torch
from kernels.candidates import RIGHT, fast_dtypes, put, raises
from torch import nn

from tabicl_linear import recipe as recipes
from tabicl_linear.backends import placement
from tabicl_linear.backends.cpp.tokenwise import COMPILED
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.kernels.rule import Kernel
from tabicl_linear.nn.tokenwise import TORCH, TokenWise

BOTH = {torch.float32, torch.bfloat16}
RECIPE = {
    "mixer": {"class_path": "tabicl_linear.mixers.delta.DeltaNet", "init_args": {}},
    "readout": {"class_path": "tabicl_linear.readouts.Causal", "init_args": {}},
    "strategy": {"class_path": "tabicl_linear.strategies.combined.Combined", "init_args": {}},
    "architecture": {"dim": 32, "num_heads": 2, "depth": 2, "num_features": 5},
}


@pytest.fixture(autouse=True)
def sixteen_bits(monkeypatch):
    """No compiled features, which would hand on float32 whatever autocast lowers to."""
    monkeypatch.setattr(placement, "unavailable", lambda: "not built")


class Wrapper(nn.Module):
    """A parent, as a LightningModule is one."""

    def __init__(self, model):
        super().__init__()
        self.model = model


def rules(model):
    return [block.mixer.rule for block in model.backbone.layers()]


def batch():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 30, 5, generator=g)
    y = torch.randint(0, 3, (2, 30), generator=g)
    return TaskBatch(x, y, torch.zeros(2, 5, dtype=torch.bool), 20, 0)


def test_a_model_is_placed_when_it_is_built_moved_and_converted(monkeypatch):
    put(monkeypatch, RIGHT)
    model = recipes.build(RECIPE)
    assert [fast_dtypes(rule) for rule in rules(model)] == [BOTH, BOTH]
    parent = Wrapper(model).bfloat16()
    assert [fast_dtypes(rule) for rule in rules(model)] == [{torch.bfloat16}] * 2
    parent.double()
    assert [rule.kernel for rule in rules(model)] == [None, None]
    parent.float()
    model.place("auto", autocast=())
    assert [fast_dtypes(rule) for rule in rules(model)] == [{torch.float32}] * 2
    model.place("torch")
    parent.bfloat16()
    assert [rule.kernel for rule in rules(model)] == [None, None]


def test_a_model_without_storage_is_placed_when_it_gets_some(monkeypatch):
    put(monkeypatch, RIGHT)
    with torch.device("meta"):
        model = recipes.build(RECIPE)
    assert [rule.kernel for rule in rules(model)] == [None, None]
    model.to_empty(device="cpu")
    assert [fast_dtypes(rule) for rule in rules(model)] == [BOTH, BOTH]


def test_token_kernels_follow_the_backend(monkeypatch):
    monkeypatch.setattr(placement, "unavailable", lambda: None)
    model = recipes.build(RECIPE)

    def kernels():
        return {m.kernels for m in model.modules() if isinstance(m, TokenWise)}

    assert kernels() == {COMPILED}
    assert {
        m.kernels for m in pickle.loads(pickle.dumps(model)).modules() if isinstance(m, TokenWise)
    } == {COMPILED}
    model.place("torch")
    assert kernels() == {TORCH}
    monkeypatch.setattr(placement, "unavailable", lambda: "not built")
    model.place("auto")
    assert kernels() == {TORCH}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_computes_the_same_and_chooses_for_itself(monkeypatch, copied):
    put(monkeypatch, RIGHT)
    model = recipes.build(RECIPE)
    expected = model(batch())
    assert torch.equal(copied(model)(batch()), expected)
    # Another machine: what the original uses does not run there.
    stored = pickle.dumps(model)
    put(monkeypatch, Kernel(raises, raises))
    elsewhere = pickle.loads(stored)
    assert [rule.kernel for rule in rules(elsewhere)] == [None, None]
    assert torch.allclose(elsewhere(batch()), expected, atol=1e-6)
    assert model.state_dict().keys() == elsewhere.state_dict().keys()


def test_placing_amid_autocast_costs_no_gradients(monkeypatch):
    """Autocast keeps the weights that it lowers; those lowered without gradients must not stay."""
    put(monkeypatch, RIGHT)
    model = recipes.build(RECIPE)
    with torch.autocast("cpu", torch.bfloat16):
        model.place("auto")
        model(batch()).square().mean().backward()
    assert model.backbone.layers()[0].mixer.qkv.weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name",
    [
        "delta.DeltaNet",
        "gated_delta.GatedDeltaNet",
        "mamba2.Mamba2",
        "gla.GatedLinearAttention",
        "linear.LinearAttention",
    ],
)
def test_16_bit_training_on_the_torch_path(name, dtype):
    """What `bf16-mixed` and `16-mixed` do: autocast, and for float16 a scaled loss."""
    mixer = {"class_path": f"tabicl_linear.mixers.{name}", "init_args": {}}
    model = recipes.build(RECIPE | {"mixer": mixer})
    model.place("torch")
    loss_of = partial(nn.functional.cross_entropy, target=batch().y[:, 20:].flatten())
    exact = torch.autograd.grad(loss_of(model(batch()).flatten(0, 1)), list(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    with torch.autocast("cpu", dtype):
        loss = loss_of(model(batch()).flatten(0, 1))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    lowered = torch.cat([p.grad.flatten() for p in model.parameters()])
    exact = torch.cat([g.flatten() for g in exact])
    assert (lowered - exact).norm() < (0.1 if dtype == torch.bfloat16 else 0.02) * exact.norm()

"""A model computes by the kernels for the device and dtype of its parameters."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest
import torch
from kernels.candidates import RIGHT, fast_dtypes, put, raises
from torch import nn

from tabicl_linear import recipe as recipes
from tabicl_linear.backends import using
from tabicl_linear.backends.choice import IMPLEMENTATIONS
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.backends.cpp.tokenwise import TOKENWISE
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.kernels import delta
from tabicl_linear.kernels.chosen import chosen as in_force
from tabicl_linear.kernels.rule import Kernel

BOTH = {torch.float32, torch.bfloat16}
RECIPE = {
    "mixer": {"class_path": "tabicl_linear.mixers.delta.DeltaNet", "init_args": {}},
    "readout": {"class_path": "tabicl_linear.readouts.Causal", "init_args": {}},
    "strategy": {"class_path": "tabicl_linear.strategies.combined.Combined", "init_args": {}},
    "architecture": {"dim": 32, "num_heads": 2, "depth": 2, "num_features": 5},
}


class Wrapper(nn.Module):
    """A parent, as a LightningModule is one."""

    def __init__(self, model):
        super().__init__()
        self.model = model


def batch():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 30, 5, generator=g)
    y = torch.randint(0, 3, (2, 30), generator=g)
    return TaskBatch(x, y, torch.zeros(2, 5, dtype=torch.bool), 20, 0)


def test_a_model_chooses_when_it_is_built_moved_and_converted(monkeypatch):
    put(monkeypatch, RIGHT)
    model = recipes.build(RECIPE)
    assert fast_dtypes(model.choice()) == BOTH
    assert model.choice() is model.choice()
    parent = Wrapper(model).bfloat16()
    assert fast_dtypes(model.choice()) == {torch.bfloat16}
    parent.double()
    assert fast_dtypes(model.choice()) == set()
    parent.float()
    model.place("auto", autocast=())
    assert fast_dtypes(model.choice()) == {torch.float32}
    model.place("torch")
    parent.bfloat16()
    assert fast_dtypes(model.choice()) == set()


def test_a_model_without_storage_chooses_when_it_gets_some(monkeypatch):
    put(monkeypatch, RIGHT)
    with torch.device("meta"):
        model = recipes.build(RECIPE)
    assert model.choice() == {}
    model.to_empty(device="cpu")
    assert fast_dtypes(model.choice()) == BOTH


@pytest.mark.skipif(unavailable() is not None, reason="the C++ kernels are not built")
def test_token_wise_functions_come_with_cpp(monkeypatch):
    model = recipes.build(RECIPE)
    for backend, expected in {"auto": TOKENWISE, "cpp": TOKENWISE, "torch": {}}.items():
        choice = model.place(backend).choice()
        assert {f: choice[f] for f in TOKENWISE if f in choice} == expected
    model.place("auto", compile_dense=True)
    assert not TOKENWISE.keys() & model.choice().keys()
    monkeypatch.setitem(
        IMPLEMENTATIONS, "cpp", IMPLEMENTATIONS["cpp"]._replace(unavailable=lambda: "not built")
    )
    assert model.place("auto").choice() == {}


def test_hooks_do_not_see_how_a_model_chooses():
    model, seen = recipes.build(RECIPE), []
    for module in model.modules():
        module.register_forward_hook(lambda *_: seen.append("after"))
        module.register_forward_pre_hook(lambda *_: seen.append("before"))
    model.bfloat16().choice()
    model.place("torch")
    assert seen == []
    model(batch())
    assert {"before", "after"} == set(seen)


def counted(calls, name):
    """A kernel that is right, and notes whose it is."""

    def scan(x, S, *, size):
        calls.append(name)
        return delta.scan(x, S, size=size)

    return Kernel(scan, delta.fold)


def test_a_model_computes_by_its_own_choice_wherever_it_computes(monkeypatch):
    """Whichever other model, or thread, is computing too."""
    calls, models = [], []
    for name in ("one", "other"):
        put(monkeypatch, counted(calls, name))
        models.append(recipes.build(RECIPE))
    models.append(recipes.build(RECIPE).place("torch"))
    for model, expected in zip(models, (["one"], ["other"], []), strict=True):
        calls.clear()
        model(batch())
        assert calls == expected
        assert in_force(delta.scan) is delta.scan
    calls.clear()
    with using(models[0].choice()):
        models[1](batch())
    with ThreadPoolExecutor(1) as pool, using(models[0].choice()):
        pool.submit(models[1], batch()).result()
        assert pool.submit(in_force, delta.scan).result() is delta.scan
        assert in_force(delta.scan) is models[0].choice()[delta.scan]
    assert calls == ["other"] * 2


def test_threads_that_compute_at_once_do_not_disturb_each_other(monkeypatch):
    put(monkeypatch, RIGHT)
    models = recipes.build(RECIPE), recipes.build(RECIPE).place("torch")
    meet = Barrier(2, timeout=60)

    def look(model):
        with model.computing():
            meet.wait()
            function = in_force(delta.scan)
            meet.wait()
        return function

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(look, models)) == [models[0].choice()[delta.scan], delta.scan]


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
    assert elsewhere.choice() == {}
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

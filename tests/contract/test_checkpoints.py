"""float32 models of every mixer and readout: as exact as they can be, also after loading."""

import random
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
import torch
from contract.fixed_decay import FixedDecay
from contract.variants import AXES, MIXERS, READOUTS, make, spanned, task
from tolerances import RMS, assert_close

from tabicl_linear import load_model
from tabicl_linear.checkpoint import export
from tabicl_linear.model import InContextModel

pairs = pytest.mark.parametrize(("mixer", "readout"), spanned())
STRATEGY = "tabicl_linear.strategies.combined.Combined"


def described(part) -> dict:
    """A class, or a partial of one, as a config describes it."""
    cls, arguments = (part.func, part.keywords) if isinstance(part, partial) else (part, {})
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": dict(arguments)}


def save(model: InContextModel, mixer, readout, path):
    """A file as `tabicl-linear fit` writes it."""
    recipe = {
        "mixer": described(mixer),
        "readout": described(readout),
        "strategy": STRATEGY,
        "architecture": asdict(model.architecture),
    }
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": weights, "hyper_parameters": recipe, "provenance": {}}, path)
    return path


def logits(model: InContextModel) -> torch.Tensor:
    batch = task()
    c = batch.num_context
    with torch.no_grad():
        state = model.fit(batch.x[:, :c], batch.y[:, :c], categorical=batch.categorical)
        return model.predict(state, batch.x[:, c:])


def loaded_both_ways(path):
    exported = path.with_suffix(".safetensors")
    export(path, exported, trust_code=True)
    return [load_model(file, trust_code=True) for file in (path, exported)]


def assert_loads_as_it_was(model, path):
    expected = logits(model)
    checkpoint, exported = loaded_both_ways(path)
    assert torch.equal(logits(checkpoint), expected)
    assert torch.equal(logits(exported), expected)
    in_double = logits(exported.double())
    assert in_double.dtype == torch.float64
    assert_close(expected, in_double, RMS[torch.float32])


@pairs
def test_a_float32_model_predicts_alike_after_a_checkpoint_and_an_export(mixer, readout, tmp_path):
    model = make(mixer, readout).float()
    path = save(model, MIXERS[mixer], READOUTS[readout], tmp_path / "last.ckpt")
    assert_loads_as_it_was(model, path)


@pytest.mark.parametrize("readout", ["causal", "final_state"])
@pytest.mark.parametrize("axis", AXES)
def test_so_does_a_model_of_any_axis(axis, readout, tmp_path):
    model = make("DeltaNet", readout, axis=axis).float()
    path = save(model, MIXERS["DeltaNet"], READOUTS[readout], tmp_path / "last.ckpt")
    assert_loads_as_it_was(model, path)
    assert all(loaded.architecture == model.architecture for loaded in loaded_both_ways(path))


def with_fixed_decays(slowest: float = 6.0) -> tuple[InContextModel, partial]:
    mixer = partial(FixedDecay, slowest=slowest)
    parts = MIXERS | {"FixedDecay": mixer}
    return make("FixedDecay", "final_state", mixers=parts), mixer


class TestWhatNoFileHolds:
    """A buffer that is not saved is computed again."""

    @pytest.fixture
    def saved(self, tmp_path):
        model, mixer = with_fixed_decays()
        model = model.float()
        return model, save(model, mixer, READOUTS["final_state"], tmp_path / "last.ckpt")

    def test_it_is_as_it_was(self, saved):
        model, path = saved
        assert not any("log_decay" in name for name in model.state_dict())
        assert_loads_as_it_was(model, path)

    def test_it_matters(self, saved):
        other = with_fixed_decays(slowest=3.0)[0].float()
        assert not torch.equal(logits(other), logits(saved[0]))

    def test_it_follows_the_weights_into_their_dtype(self, tmp_path):
        model, mixer = with_fixed_decays()
        path = save(model, mixer, READOUTS["final_state"], tmp_path / "last.ckpt")
        for loaded in loaded_both_ways(path):
            assert {buffer.dtype for buffer in loaded.buffers()} == {torch.float64}
            assert torch.equal(logits(loaded), logits(model))


class DrawsEverywhere(FixedDecay):
    """A mixer that draws from all global generators while it is built."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__(dim, num_heads)
        torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002


def generators() -> list:
    return [torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()]  # noqa: NPY002


def test_loading_draws_nothing_from_the_global_generators(tmp_path):
    model = make("Other", "causal", mixers={"Other": DrawsEverywhere})
    path = save(model, DrawsEverywhere, READOUTS["causal"], tmp_path / "last.ckpt")
    before = generators()
    load_model(path, trust_code=True)
    assert generators() == before
    DrawsEverywhere(32, 2)
    assert all(now != then for now, then in zip(generators(), before, strict=True))


def test_a_model_is_loaded_onto_the_cpu_whatever_the_default_device(tmp_path):
    model, mixer = with_fixed_decays()
    path = save(model, mixer, READOUTS["final_state"], tmp_path / "last.ckpt")
    with torch.device("meta"):
        loaded = load_model(path, trust_code=True)
        assert torch.empty(1).is_meta
    tensors = [*loaded.parameters(), *loaded.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}
    assert torch.equal(logits(loaded), logits(model))

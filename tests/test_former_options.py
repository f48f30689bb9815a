"""Files that describe a network by the names of its options up to version 0.1."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tabicl_linear import build_task, load_model
from tabicl_linear.architecture import Architecture
from tabicl_linear.architecture_options import Blocks, Cells, CodeOptions
from tabicl_linear.checkpoint import identity
from tabicl_linear.errors import ConfigError
from tabicl_linear.former_options import REMEDIES, current, current_config, description
from tabicl_linear.recipe import build

FLAT = {
    "dim": 320,
    "num_heads": 4,
    "depth": 12,
    "num_features": 20,
    "num_classes": 10,
    "feed_forward": "swiglu",
    "hidden_dim": 640,
    "decoder_dim": 512,
    "norm": "pre_rms",
    "norm_eps": 1e-06,
    "final_norm": True,
    "weave_states": False,
    "learn_states": False,
    "label_code": "scalar",
    "value_code": "linear",
    "mask_absent_classes": False,
    "two_axis": False,
    "features_per_group": 2,
    "group_offsets": None,
    "group_stride": 2,
    "label_in_every_cell": False,
    "head_reads": "label_cell",
    "cell_attention_every": 2,
    "ridge_inputs": None,
}
"""All former options with their defaults."""
CHANGES = [
    ({}, Architecture()),
    (
        {"feed_forward": "gelu", "norm": "post_layer", "norm_eps": 1e-5, "final_norm": False},
        Architecture(blocks=Blocks("gelu", "post_layer", 1e-5, final_norm=False)),
    ),
    ({"weave_states": True}, Architecture(initial_states="woven")),
    ({"learn_states": True}, Architecture(initial_states="learned")),
    (
        {"label_code": "one_hot", "value_code": "fourier", "mask_absent_classes": True},
        Architecture(codes=CodeOptions("one_hot", "fourier"), mask_absent_classes=True),
    ),
    ({"two_axis": True, "features_per_group": 3}, Architecture(cells=Cells(columns=3))),
    (
        {
            "two_axis": True,
            "group_offsets": (0, 2),
            "group_stride": 1,
            "label_in_every_cell": True,
            "head_reads": "mean",
            "cell_attention_every": 1,
        },
        Architecture(
            cells=Cells(
                offsets=(0, 2),
                stride=1,
                label_in_every_cell=True,
                head_reads="mean",
                attention_every=1,
            )
        ),
    ),
]


@pytest.mark.parametrize(("former", "present"), CHANGES)
def test_a_whole_section_describes_the_same_network(former, present):
    flat = FLAT | former
    assert Architecture(**current(flat)) == present
    # As Python showed the former dataclass: files of fitted states hold its digest.
    text = ", ".join(f"{name}={value!r}" for name, value in flat.items())
    assert description(present) == f"Architecture({text})"


def test_every_former_name_has_a_remedy_and_no_present_one():
    kept = FLAT.keys() - REMEDIES.keys()
    assert kept == current(FLAT).keys() - {"blocks", "codes", "cells", "initial_states"}


def test_parts_of_a_section_keep_to_what_they_say():
    assert current({"depth": 3, "norm_eps": 1e-5}) == {"depth": 3, "blocks": {"norm_eps": 1e-5}}
    assert current({"learn_states": False}) == {"initial_states": "zero"}
    assert current({"two_axis": False, "group_stride": 2}) == {"cells": None}
    with pytest.raises(ConfigError, match=r"write cells\.stride\. Whether .* two_axis, is not"):
        current({"group_stride": 2})
    present = {"dim": 3, "blocks": {"norm": "pre_rms"}}
    assert current(present) == present


def test_configs_are_changed_in_that_section_alone():
    config = {"model": {"mixer": "a", "architecture": {"two_axis": True}}, "data": {"norm": 1}}
    assert current_config(config) == {
        "model": {"mixer": "a", "architecture": {"cells": {}}},
        "data": {"norm": 1},
    }
    assert current_config({"data": {}}) == {"data": {}}


def test_an_export_with_former_names_loads(tmp_path):
    sizes = {"dim": 16, "depth": 1, "num_heads": 2, "hidden_dim": 8, "decoder_dim": 8}
    recipe = {
        "mixer": {"class_path": "tabicl_linear.mixers.delta.DeltaNet", "init_args": {}},
        "readout": {"class_path": "tabicl_linear.readouts.Causal", "init_args": {}},
        "strategy": {"class_path": "tabicl_linear.strategies.combined.Combined", "init_args": {}},
    }
    own = Architecture(**sizes, cells=Cells(attention_every=1), initial_states="learned")
    changes = sizes | {"two_axis": True, "cell_attention_every": 1, "learn_states": True}
    present = {"cells": {"attention_every": 1}, "initial_states": "learned"}
    model = build({**recipe, "architecture": sizes | present})
    assert model.architecture == own
    described = {**recipe, "architecture": FLAT | changes}
    metadata = {"format": "tabicl_linear/1", "recipe": json.dumps(described), "provenance": "{}"}
    path = Path(tmp_path / "former.safetensors")
    save_file(model.state_dict(), path, metadata=metadata)
    loaded = load_model(path)
    assert loaded.architecture == own
    assert identity(loaded) == identity(model.eval())
    x, y = torch.randn(1, 8, 4), torch.tensor([[0, 1] * 4])
    assert torch.equal(loaded.predict(loaded.fit(x, y), x), model.predict(model.fit(x, y), x))
    with pytest.raises(ConfigError, match=r"norm_eps has another name now: write blocks\.norm_eps"):
        load_model(path, ["model.architecture.norm_eps=1e-3"])


@pytest.mark.parametrize("name", ["two_axis", "learn_states", "norm_eps", "group_stride"])
def test_a_config_is_told_the_new_name(name, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(f"model: {{architecture: {{{name}: {FLAT[name]}}}}}")
    for given in ({"overrides": [f"model.architecture.{name}={FLAT[name]}"]}, {"paths": [path]}):
        with pytest.raises(ConfigError) as refusal:
            build_task(*given.get("paths", ()), overrides=given.get("overrides", ()))
        assert f"has another name now: write {REMEDIES[name]}" in str(refusal.value)

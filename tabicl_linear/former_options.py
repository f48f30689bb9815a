"""Options of a network by the names that they had in files up to version 0.1, all of them flat."""

from collections.abc import Mapping
from typing import Any

from tabicl_linear.architecture import Architecture
from tabicl_linear.architecture_options import Cells
from tabicl_linear.errors import ConfigError

MOVED = {
    "feed_forward": ("blocks", "feed_forward"),
    "norm": ("blocks", "norm"),
    "norm_eps": ("blocks", "norm_eps"),
    "final_norm": ("blocks", "final_norm"),
    "label_code": ("codes", "labels"),
    "value_code": ("codes", "values"),
}
"""Former name -> group and name."""
OF_CELLS = {
    "features_per_group": "columns",
    "group_offsets": "offsets",
    "group_stride": "stride",
    "label_in_every_cell": "label_in_every_cell",
    "head_reads": "head_reads",
    "cell_attention_every": "attention_every",
}
"""Former name -> name in `cells`, which is there where `two_axis` was true."""
REMEDIES = {
    "two_axis": "cells: {} for true, cells: null for false",
    "weave_states": "initial_states: woven",
    "learn_states": "initial_states: learned",
    **{name: f"{group}.{option}" for name, (group, option) in MOVED.items()},
    **{name: f"cells.{option}" for name, option in OF_CELLS.items()},
}
"""What replaces each former name."""


def remedy(name: str) -> str:
    """Says what replaces a former name."""
    return f"model.architecture.{name} has another name now: write {REMEDIES[name]}."


def current(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """The section `model.architecture` of a config or recipe, whole or in part, by present names.

    One that has no former names is returned as it is. In a part, the options of cells say something
    only together with `two_axis`.

    Raises:
        ConfigError: Options of cells, but not whether there are any.
    """
    former = {name: value for name, value in architecture.items() if name in REMEDIES}
    options = {name: value for name, value in architecture.items() if name not in REMEDIES}
    for name, (group, option) in MOVED.items():
        if name in former:
            options[group] = {**options.get(group, {}), option: former[name]}
    if former.keys() & {"weave_states", "learn_states"}:
        learned = "learned" if former.get("learn_states") else "zero"
        options["initial_states"] = "woven" if former.get("weave_states") else learned
    cells = {option: former[name] for name, option in OF_CELLS.items() if name in former}
    if "two_axis" in former:
        options["cells"] = cells if former["two_axis"] else None
    elif cells:
        name = next(name for name in OF_CELLS if name in former)
        raise ConfigError(f"{remedy(name)} Whether a row has cells, two_axis, is not said.")
    return options


def current_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config tree, whole or in part, whose network is described by present names."""
    model = config.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("architecture"), Mapping):
        return dict(config)
    return {**config, "model": {**model, "architecture": current(model["architecture"])}}


def description(architecture: Architecture) -> str:
    """One line that is the same for the same network as it was under former names.

    Files of fitted states know by it to which model they belong.
    """
    cells = Cells() if architecture.cells is None else architecture.cells
    options: dict[str, Any] = {
        "dim": architecture.dim,
        "num_heads": architecture.num_heads,
        "depth": architecture.depth,
        "num_features": architecture.num_features,
        "num_classes": architecture.num_classes,
        "feed_forward": architecture.blocks.feed_forward,
        "hidden_dim": architecture.hidden_dim,
        "decoder_dim": architecture.decoder_dim,
        "norm": architecture.blocks.norm,
        "norm_eps": architecture.blocks.norm_eps,
        "final_norm": architecture.blocks.final_norm,
        "weave_states": architecture.initial_states == "woven",
        "learn_states": architecture.initial_states == "learned",
        "label_code": architecture.codes.labels,
        "value_code": architecture.codes.values,
        "mask_absent_classes": architecture.mask_absent_classes,
        "two_axis": architecture.cells is not None,
        **{name: getattr(cells, option) for name, option in OF_CELLS.items()},
        "ridge_inputs": architecture.ridge_inputs,
    }
    return f"Architecture({', '.join(f'{name}={value!r}' for name, value in options.items())})"

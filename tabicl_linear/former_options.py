"""Translates the option names of a network in files up to version 0.1, where all were flat."""

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
"""Former name -> present group and name."""
OF_CELLS = {
    "features_per_group": "columns",
    "group_offsets": "offsets",
    "group_stride": "stride",
    "label_in_every_cell": "label_in_every_cell",
    "head_reads": "head_reads",
    "cell_attention_every": "attention_every",
}
"""Former name -> name in `cells`, a group that exists if `two_axis` was true."""
REMEDIES = {
    "two_axis": "cells: {} for true, cells: null for false",
    "weave_states": "initial_states: woven",
    "learn_states": "initial_states: learned",
    **{name: f"{group}.{option}" for name, (group, option) in MOVED.items()},
    **{name: f"cells.{option}" for name, option in OF_CELLS.items()},
}
"""What to write in place of each former name."""


def remedy(name: str) -> str:
    """A message that says what to write in place of a former name."""
    return f"model.architecture.{name} has another name now: write {REMEDIES[name]}."


def current(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the section `model.architecture` of a config or recipe to present names.

    The section may be partial. Options of cells are meaningful only together with `two_axis`.

    Raises:
        ConfigError: There are options of cells, but not `two_axis`.
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
    """Translate a config tree, which may be partial, to present names of network options."""
    model = config.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("architecture"), Mapping):
        return dict(config)
    return {**config, "model": {**model, "architecture": current(model["architecture"])}}


def description(architecture: Architecture) -> str:
    """A line that describes a network by former names, and so has not changed between versions.

    Files of fitted states identify their model by it.
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

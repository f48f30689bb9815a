"""The arms of the study: the paper's trained models, and what this project adds to them.

An arm is a name with config files of `configs/`. A scale (scales/*.yaml) changes their sizes, so
that they can be trained on the machine at hand.
"""

from collections.abc import Mapping

from tabicl_linear.runs import RUNS

_REMEDIED = "deltanet_fs_decay"

_BEYOND: dict[str, tuple[str, ...]] = {
    "deltanet_fs_decay_log_uniform": (_REMEDIED, "length/log_uniform_8k"),
    "deltanet_fs_decay_batch_sharing": (_REMEDIED,),
    "deltanet_fs_decay_ridge_inputs": (_REMEDIED, "inputs/ridge"),
    "deltanet_fs_decay_cells": (_REMEDIED, "axis/cells"),
    "deltanet_fs_decay_mixture": (_REMEDIED, "prior/mixture"),
    "deltanet_fs_decay_muon": (_REMEDIED, "learner/muon"),
}
"""Arms beyond the paper: varying lengths, sharing in batches, and this project's additions."""

_CONVOLVED: dict[str, tuple[str, ...]] = {
    f"{family}{strategy}_conv": (f"mixer/{mixer}_conv", "readout/causal", overlay)
    for family, mixer in (("deltanet", "delta"), ("gated_deltanet", "gated_delta"), ("gla", "gla"))
    for strategy, overlay in (
        ("", "strategy/comb_st"),
        ("_comb_mt", "strategy/comb_mt"),
        ("_int_st", "strategy/int_st"),
        ("_int_mt", "strategy/int_mt"),
    )
}
"""Table 1 with a short convolution in every mixer, as Mamba-2 always has one. Without it, models
with interleaved tokens do not get beyond guessing within the budget of the small scale."""

_NEWER: dict[str, tuple[str, ...]] = {
    rule: (f"mixer/{rule}", "readout/causal", "strategy/comb_st")
    for rule in ("kimi_delta", "kimi_delta_decay", "delta_product", "delta_product_decay")
}
"""Rules newer than the paper, each with and without its decay of write rates."""

MINIMAL: dict[str, tuple[str, ...]] = {
    "minimal_causal": ("linear_causal", "prior/gaussian_uniform"),
    "minimal_noncausal": ("linear_noncausal", "prior/gaussian_uniform"),
    "minimal_causal_deep": ("linear_causal", "prior/gaussian_uniform"),
    "minimal_noncausal_deep": ("linear_noncausal", "prior/gaussian_uniform"),
    "minimal_causal_long": ("linear_causal", "prior/gaussian_uniform"),
    "minimal_noncausal_long": ("linear_noncausal", "prior/gaussian_uniform"),
}
"""Linear attention on Gaussian features and uniform labels (the authors' minimal example): plain,
with as many layers as theirs (`_deep`), and with four times as many steps (`_long`). Their scores
by length are measured on tables of the same kind."""

ARMS: Mapping[str, tuple[str, ...]] = {
    **{name: run.overlays for name, run in RUNS.items()},
    **_BEYOND,
    **_CONVOLVED,
    **_NEWER,
    **MINIMAL,
}
"""Config files of every arm, relative to `configs/` and without their suffix."""

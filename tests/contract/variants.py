"""Every mixer of the package, found by walking it, with every readout it serves."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch

import tabicl_linear.mixers
from tabicl_linear.architecture_options import Cells, CodeOptions
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.mixers.gated_delta import GatedDeltaNet
from tabicl_linear.mixers.gla import GatedLinearAttention
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.model import Architecture, InContextModel
from tabicl_linear.readouts import Bidirectional, Causal, FinalState
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.strategies.combined import Combined
from tabicl_linear.strategies.interleaved import Interleaved


def _discover() -> dict[str, Callable[..., SequenceMixer]]:
    return {cls.__name__: cls for cls in defined_in(tabicl_linear.mixers, SequenceMixer)}


def defined_in(package: ModuleType, base: type) -> list[type]:
    """Every class below `base` that a module of the package defines, however deep."""
    names = [info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    result = [vars(importlib.import_module(name)).values() for name in names]
    return [
        cls
        for name, values in zip(names, result, strict=True)
        for cls in values
        if isinstance(cls, type) and issubclass(cls, base) and cls.__module__ == name
        if not inspect.isabstract(cls)
    ]


MIXERS: dict[str, Callable[..., SequenceMixer]] = {
    **_discover(),
    "DeltaNet+decay": partial(DeltaNet, decay_constant=5.0),
    "DeltaNet+conv": partial(DeltaNet, conv_size=3),
    "DeltaNet+decay+conv": partial(DeltaNet, decay_constant=5.0, conv_size=4),
    "GatedDeltaNet+decay": partial(GatedDeltaNet, decay_constant=5.0),
    "GatedDeltaNet+conv": partial(GatedDeltaNet, conv_size=4),
    "GatedLinearAttention+conv": partial(GatedLinearAttention, conv_size=4),
    "GatedDeltaNet+mimetic": partial(GatedDeltaNet, mimetic=True),
    "GatedLinearAttention+mimetic": partial(GatedLinearAttention, mimetic=True),
    "LinearAttention+Z": partial(LinearAttention, normalise=True),
}
READOUTS = {
    "causal": Causal,
    "causal_no_self_term": partial(Causal, self_term=False),
    "causal_frobenius": partial(Causal, normalise=True),
    "final_state": FinalState,
    "final_state_frobenius": partial(FinalState, normalise=True),
    "bidirectional": Bidirectional,
    "woven_causal": Causal,
    "woven_final_state": FinalState,
}
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "comb_st": Combined,
    "comb_mt": partial(Combined, "multi"),
    "int_st": Interleaved,
    "int_mt": partial(Interleaved, "multi"),
}
SMALL = Architecture(
    dim=32, num_heads=2, depth=2, num_features=6, num_classes=4, hidden_dim=8, decoder_dim=8
)

FEW = RidgeOptions(num_tanh=5, num_cosine=4, num_trees=2, tree_depth=2)
EARLIER = replace(FEW, form="earlier_rows")
CELLS: dict[str, Any] = {
    "cells": Cells(
        offsets=(0, 1, 3), label_in_every_cell=True, head_reads="mean", attention_every=1
    ),
    "mask_absent_classes": True,
}
AXES: dict[str, dict[str, Any]] = {
    "row": {},
    "two_axis": {"cells": Cells()},
    "coded_row": {"codes": CodeOptions("one_hot", "fourier"), "mask_absent_classes": True},
    "cells": CELLS,
    "ridge_row": {"ridge_inputs": FEW, "codes": CodeOptions("one_hot")},
    "ridge_cells": {"ridge_inputs": FEW, **CELLS},
    "ridge_earlier_row": {"ridge_inputs": EARLIER},
    "ridge_earlier_cells": {"ridge_inputs": EARLIER, **CELLS},
    "ridge_earlier_logistic": {"ridge_inputs": replace(EARLIER, calibration="logistic")},
}
"""What a row becomes: options of the architecture by name."""
KINDS = ("DeltaNet", "GatedLinearAttention", "Ridge", "Softmax")
"""A mixer for each kind of state, without options."""
PASSES = ("causal", "final_state", "bidirectional", "woven_causal")
"""A readout for each kind of pass over the context."""
LEARNED = {"coded_row", "cells"}
"""Where layers start from learned states too, if they start from no woven ones and have any."""


def make(
    mixer: str,
    readout: str,
    strategy: str = "comb_st",
    *,
    seed: int = 0,
    axis: str = "row",
    mixers: Mapping[str, Callable[..., SequenceMixer]] = MIXERS,
) -> InContextModel:
    """A small float64 model whose parameters are seeded noise, so that every part matters."""
    model = _built(mixers[mixer], readout, strategy, axis).double()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
            parameter.copy_(0.5 + 0.1 * noise if parameter.ndim == 1 else 0.4 * noise)
    return model


def _built(
    mixer: Callable[..., SequenceMixer],
    readout: str,
    strategy: str,
    axis: str,
    depth: int = SMALL.depth,
) -> InContextModel:
    """The model with its initial weights."""
    weaves = readout.startswith("woven")
    has_states = mixer(SMALL.dim, SMALL.num_heads).rule.has_matrix_state
    learns = axis in LEARNED and has_states and not weaves
    start = "woven" if weaves else "learned" if learns else "zero"
    architecture = replace(SMALL, depth=depth, initial_states=start, **AXES[axis])
    return InContextModel.from_parts(
        mixer, READOUTS[readout], strategy=STRATEGIES[strategy](), architecture=architecture
    )


def shared(
    mixer: str, readout: str, strategy: str = "comb_st", axis: str = "row"
) -> InContextModel:
    """The model of `make` for all tests that leave it as it is, but for gradients.

    Making it draws none of the random numbers of a test.
    """
    return _made_once(mixer, readout, strategy, axis)


@cache
def _made_once(*names: str) -> InContextModel:
    *others, axis = names
    with torch.random.fork_rng(devices=[]):
        return make(*others, axis=axis)


@cache
def served() -> tuple[tuple[str, str], ...]:
    """All (mixer, readout) pairs that can be built, here with one layer.

    Without memory, on the device `meta`, they would take twice as long: it is written in Python.
    """
    pairs = []
    for mixer in MIXERS:
        for readout in READOUTS:
            try:
                _built(MIXERS[mixer], readout, "comb_st", "row", depth=1)
            except ConfigError:
                continue
            pairs.append((mixer, readout))
    return tuple(pairs)


@cache
def varied() -> tuple[tuple[str, str], ...]:
    """All pairs of mixers without options, and of options with DeltaNet; else one of each pass.

    An option changes the streams of a mixer, and a readout cannot tell streams from streams.
    """
    return tuple(
        (mixer, readout)
        for mixer, readout in served()
        if "+" not in mixer
        or mixer.startswith(("DeltaNet", "LinearAttention"))
        or readout in PASSES[: 2 if "mimetic" in mixer else None]  # another start alone
    )


@cache
def spanned() -> tuple[tuple[str, str], ...]:
    """As few of `varied()` as run the same lines: each readout with each kind of state.

    A mixer of another kind has its first readout and a bidirectional one, and one without options
    what readouts do beside their passes. For tests of what mixers and readouts do apart.
    """
    first = dict(reversed(varied()))
    return tuple(
        (mixer, readout)
        for mixer, readout in varied()
        if mixer in KINDS
        or readout in (first[mixer], "bidirectional")
        or ("+" not in mixer and readout not in PASSES)
    )


def across_axes() -> list[tuple[str, str, str]]:
    """(mixer, readout, axis): what a row becomes, with each kind of state and of pass.

    Cells are more sequences and codes are other tokens, which a mixer cannot tell from rows. So
    other axes than rows are not run with every pair, but with these.
    """
    rows = [
        (*pair, axis)
        for axis in ("two_axis", "coded_row", "cells")
        for pair in served()
        if pair[0] in KINDS and pair[1] in PASSES
    ]
    # Ridge inputs know no mixers. Predicting rows from all others makes no model causal, and from
    # earlier rows none that is not.
    rows += [
        (*pair, axis)
        for axis in ("ridge_row", "ridge_cells")
        for pair in served()
        if pair[0] in ("DeltaNet", "Softmax") and pair[1] in PASSES and pair[1] != "causal"
    ]
    return rows + [("DeltaNet", "causal", axis) for axis in AXES if "earlier" in axis]


def task(rows: int = 30, *, num_context: int = 20, seed: int = 0, batch: int = 2) -> TaskBatch:
    """A random float64 task with a categorical column and missing cells."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, rows, 5, generator=g, dtype=torch.float64)
    x[:, :, 2] = torch.randint(0, 3, (batch, rows), generator=g).double()
    x[:, 3, 1] = torch.nan
    y = torch.randint(0, 4, (batch, rows), generator=g)
    y[:, :4] = torch.arange(4)
    categorical = torch.tensor([False, False, True, False, False]).expand(batch, 5)
    return TaskBatch(x, y, categorical, num_context, 0)

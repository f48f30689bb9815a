"""Shows how large the states of a model are, and how many directions they use, while it trains."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from tabicl_linear.analysis import matrices, state_norms
from tabicl_linear.analysis.cards import norm_card
from tabicl_linear.analysis.probe_tasks import Probe
from tabicl_linear.callbacks.probing import OneLength
from tabicl_linear.model import InContextModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NORMS = ("frobenius", "spectral", "max_abs", "effective_rank", "stable_rank")


class StateNorms(OneLength):
    """Logs Frobenius, spectral and max-abs norm, effective and stable rank of states.

    The Parquet file has them by task, layer and head (`analysis.state_norms`). TensorBoard gets the
    mean of every layer, `within/state/<norm>/layer_<n>`, and a picture of all heads for each norm.
    For softmax attention nothing is logged.

    Args:
        every_n_steps: Optimiser steps between looks at the model; 0 for no looks.
        num_tasks: Probe tasks.
        length: Rows of context; if None, as many as the longest table of training has.
    """

    name: ClassVar[str] = "state_norms"
    charts: ClassVar[Mapping[str, Sequence[str]]] = {
        norm.replace("_", " "): [f"state/{norm}/.*"] for norm in NORMS
    }

    def look(self, model: InContextModel, probe: Probe) -> pd.DataFrame | None:
        """Norms of all layers and heads."""
        assert probe.trained is not None
        (length,) = self.lengths(probe.trained)
        states = matrices(model, probe.fit(model, length))
        return state_norms(states, num_tasks=self.num_tasks) if states else None

    def scalars(self, table: pd.DataFrame) -> dict[str, float]:
        """Mean over tasks, cells and heads, by norm and layer."""
        means = table.groupby("layer")[list(NORMS)].mean()
        return {
            f"state/{norm}/layer_{layer:02d}": float(value)
            for norm in NORMS
            for layer, value in means[norm].items()
        }

    def pictures(self, table: pd.DataFrame, probe: Probe) -> "dict[str, Figure]":
        """A picture of each norm: all heads, over layers."""
        return {f"state/{norm}": norm_card(table, norm) for norm in NORMS}

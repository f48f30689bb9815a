"""Shows how strongly tokens are written, and how much of earlier ones stays, during training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from tabicl_linear.analysis import gates, record_streams, write_rates
from tabicl_linear.analysis.cards import write_rates_card
from tabicl_linear.analysis.probe_tasks import Probe
from tabicl_linear.analysis.rate_profiles import token_means
from tabicl_linear.callbacks.probing import OneLength
from tabicl_linear.model import InContextModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_BINS = 48


class WriteRates(OneLength):
    """Logs effective write rates and decay gates by layer and position (`analysis.write_rates`).

    TensorBoard gets the mean over positions of every layer, `within/write_rate/layer_<n>` (and
    `within/kept/...` for decay gates), and a picture of the profiles of all layers. Their 95 %
    intervals over tasks are in the Parquet files. For a mixer without write rates and gates nothing
    is logged.

    Args:
        every_n_steps: Optimiser steps between looks at the model; 0 for no looks.
        num_tasks: Probe tasks.
        length: Rows of context; if None, as many as the longest table of training has.
    """

    name: ClassVar[str] = "write_rates"
    charts: ClassVar[Mapping[str, Sequence[str]]] = {"mean by layer": ["write_rate/.*", "kept/.*"]}

    def look(self, model: InContextModel, probe: Probe) -> pd.DataFrame | None:
        """Profiles of all layers, in bins of positions."""
        assert probe.trained is not None
        (length,) = self.lengths(probe.trained)
        with record_streams(model, keep=gates) as recorded:
            probe.fit(model, length, anew=True)
        if all(gate is None for layer in recorded.layers for gate in layer):
            return None
        return write_rates(recorded.layers, num_tasks=self.num_tasks, num_bins=NUM_BINS)

    def scalars(self, table: pd.DataFrame) -> dict[str, float]:
        """The mean over positions of each gate and layer."""
        means = token_means(table, ["gate", "layer"])
        return {f"{gate}/layer_{layer:02d}": mean for (gate, layer), mean in means.items()}

    def pictures(self, table: pd.DataFrame, probe: Probe) -> "dict[str, Figure]":
        """A picture for each gate: its profiles over positions."""
        return {str(gate): write_rates_card(table, str(gate)) for gate in table["gate"].unique()}

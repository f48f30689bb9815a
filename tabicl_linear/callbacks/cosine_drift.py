"""Shows how far states turn as contexts grow, while a model trains."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from tabicl_linear.analysis import matrices
from tabicl_linear.analysis.cards import drift_card
from tabicl_linear.analysis.probe_tasks import REFERENCE, Probe
from tabicl_linear.analysis.state_drift import cosines
from tabicl_linear.callbacks.probing import SeveralLengths
from tabicl_linear.model import InContextModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CosineDrift(SeveralLengths):
    """Logs the cosine between states at several context lengths and at two reference lengths.

    The references are 1,000 rows, as in the paper, and the longest table of training. TensorBoard
    gets the cosine at the longest context, `within/cosine_drift/to_<rows>/layer_<n>`, and a
    heatmap of layers by lengths for each reference. A reference that is itself the longest context
    gets no curve, as it would be constant at 1. For softmax attention nothing is logged.

    Args:
        every_n_steps: Optimiser steps between looks at the model; 0 for no looks.
        num_tasks: Probe tasks.
        lengths: Context lengths in rows, besides the references; if None, from an eighth to four
            times the longest table of training.
    """

    name: ClassVar[str] = "cosine_drift"
    charts: ClassVar[Mapping[str, Sequence[str]]] = {"longest context": ["cosine_drift/.*"]}

    def lengths(self, trained: int) -> list[int]:
        """All context lengths in rows, with the references, in increasing order."""
        return sorted({*super().lengths(trained), REFERENCE, trained})

    def look(self, model: InContextModel, probe: Probe) -> pd.DataFrame | None:
        """Cosines by reference, layer and length."""
        trained = probe.trained
        assert trained is not None
        states = {n: matrices(model, probe.fit(model, n)) for n in self.lengths(trained)}
        if not states[trained]:
            return None
        tables = [
            cosines(states, reference).assign(reference=reference)
            for reference in sorted({REFERENCE, trained})
        ]
        return pd.concat(tables, ignore_index=True)

    def scalars(self, table: pd.DataFrame) -> dict[str, float]:
        """Cosine at the longest context, by reference and layer; not of a state with itself."""
        longest = table["length"] == table["length"].max()
        lines = table[longest & (table["length"] != table["reference"])]
        return {
            f"cosine_drift/to_{row.reference}/layer_{row.layer:02d}": row.cosine
            for row in lines.itertuples(index=False)
        }

    def pictures(self, table: pd.DataFrame, probe: Probe) -> "dict[str, Figure]":
        """A heatmap for each reference."""
        return {
            f"cosine_drift/to_{reference}": drift_card(part, trained=probe.trained)
            for reference, part in table.groupby("reference")
        }

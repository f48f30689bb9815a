"""Write rates and gates by layer and position (section 4.4, figure "Effective write rates")."""

from collections.abc import Sequence

import pandas as pd

from tabicl_linear.analysis.profiles import bin_edges, interval, means_of_bins
from tabicl_linear.analysis.streams import Gates, by_task
from tabicl_linear.errors import NotInModel
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor

WRITE_RATE, KEPT = "write_rate", "kept"


def write_rates(
    layers: Sequence[Streams | Gates],
    *,
    num_tasks: int | None = None,
    num_bins: int | None = None,
) -> pd.DataFrame:
    """Effective write rates and decay gates by layer and position.

    Args:
        layers: Streams of every layer, as `record_streams` gives them, or their `gates`.
        num_tasks: Number of tasks that were fitted; if None, every sequence is a task.
        num_bins: Positions are averaged in at most this many bins, evenly spaced on a logarithmic
            scale; if None, each position has its own row.

    Returns:
        Columns layer, gate, position, last, mean, low, high:

        - gate: `write_rate` for beta_t, including its decay over time (dt_t for Mamba-2); `kept`
          for alpha_t = exp(log_decay), averaged over key channels if each has its own. A layer
          without one of them has no rows for it.
        - position, last: first and last token of the bin; tokens count from 0.
        - mean, low, high: mean over tasks and its 95 % interval (NaN for a single task). Heads,
          cells, directions and the tokens of the bin are averaged first.

    Raises:
        NotInModel: No layer has a write rate or gate.

    Example:
        >>> import torch
        >>> from tabicl_linear.analysis import Gates, write_rates
        >>> beta = torch.full((2, 3, 1), 0.5)
        >>> write_rates([Gates(beta, None)])[["layer", "gate", "position", "mean", "low"]]
           layer        gate  position  mean  low
        0      1  write_rate         0   0.5  0.5
        1      1  write_rate         1   0.5  0.5
        2      1  write_rate         2   0.5  0.5
    """
    parts = []
    for layer, streams in enumerate(layers, start=1):
        if streams.beta is not None:
            parts.append(_profile(streams.beta, layer, WRITE_RATE, num_tasks, num_bins))
        if streams.log_decay is not None:
            retention = streams.log_decay.double().exp().mean(-1)
            parts.append(_profile(retention, layer, KEPT, num_tasks, num_bins))
    if not parts:
        raise NotInModel(
            "No layer of the model has a write rate or a decay gate: its rule writes every token "
            "with weight one; give a model with a delta, gated or state-space mixer."
        )
    return pd.concat(parts, ignore_index=True)


def token_means(profiles: pd.DataFrame, by: str | list[str]) -> pd.Series:
    """Means of a table of `write_rates` over tokens, grouped by some of its columns."""
    tokens = profiles["last"] - profiles["position"] + 1
    sums = profiles.assign(tokens=tokens, sum=profiles["mean"] * tokens).groupby(by)
    return sums["sum"].sum() / sums["tokens"].sum()


def _profile(
    z: Float[Tensor, "s t h"], layer: int, gate: str, num_tasks: int | None, num_bins: int | None
) -> pd.DataFrame:
    edges = bin_edges(z.shape[1], num_bins)
    tasks = means_of_bins(by_task(z.double().mean(-1), num_tasks).mean(1), edges)
    mean, low, high = interval(tasks.cpu().numpy())
    columns = {"layer": layer, "gate": gate, "position": edges[:-1], "last": edges[1:] - 1}
    return pd.DataFrame({**columns, "mean": mean, "low": low, "high": high})

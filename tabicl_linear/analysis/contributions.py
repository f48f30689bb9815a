"""How much of each token is left in the final state (appendix "Final-state contribution")."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import torch

from tabicl_linear.analysis.profiles import bin_edges
from tabicl_linear.analysis.streams import Gates, by_task
from tabicl_linear.errors import DataError, NotInModel
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor


def contribution(
    layers: Sequence[Streams | Gates],
    *,
    erases: bool = True,
    num_heads: int | None = None,
    num_tasks: int | None = None,
    num_bins: int | None = None,
) -> pd.DataFrame:
    """C_s = beta_s prod_{t>s} (1 - beta_t) alpha_t, by layer and lookback n - 1 - s.

    With equal unit-norm keys this is the weight of token s in the final state, and a lower bound
    otherwise. The paper's formula has no gates: alpha is 1 where a layer has none.

    Args:
        layers: Streams of every layer, as `record_streams` gives them, or their `gates`.
        erases: Whether writes erase (`UpdateRule.erases`). If not, C_s = beta_s prod alpha_t.
        num_heads: Heads of the states; if None, as many as write rates. If there are more rates
            than heads, each token is written several times (DeltaProduct), with the rates of its
            writes next to each other in each head. C_s is then the contribution of one write,
            which later writes erase.
        num_tasks: Number of tasks that were fitted; if None, every sequence is a task.
        num_bins: Lookbacks are averaged in at most this many bins, evenly spaced on a logarithmic
            scale; if None, each lookback has its own row.

    Returns:
        Columns layer, lookback and last (first and last lookback of the bin; 0 is the last token),
        contribution and log10_contribution: the mean over tasks, cells, directions, heads, key
        channels and the tokens of the bin, and its logarithm, which stays finite where the mean is
        too small for a float.

    Raises:
        NotInModel: No layer has a write rate or gate.

    Example:
        >>> import torch
        >>> from tabicl_linear.analysis import Gates, contribution
        >>> contribution([Gates(torch.full((1, 3, 1), 0.5), None)])[["lookback", "contribution"]]
           lookback  contribution
        0         0         0.500
        1         1         0.250
        2         2         0.125
    """
    parts = []
    for layer, streams in enumerate(layers, start=1):
        if streams.beta is None and streams.log_decay is None:
            continue
        logs = log_contributions(streams, erases=erases, num_heads=num_heads).flip(1)
        tasks = by_task(logs, num_tasks)
        parts.append(_profile(tasks.flatten(0, 1), layer, num_bins))
    if not parts:
        raise NotInModel(
            "No layer of the model has a write rate or a decay gate: every token contributes the "
            "same; give a model with a delta, gated or state-space mixer."
        )
    return pd.concat(parts, ignore_index=True)


def log_contributions(
    streams: Streams | Gates, *, erases: bool = True, num_heads: int | None = None
) -> Float[Tensor, "s t h g"]:
    """log C_s of every token, head and gate of a layer, in float64.

    If a token is written several times, the writes take the place of gates. Arguments as in
    `contribution`.
    """
    beta, log_decay = streams.beta, streams.log_decay
    if beta is not None and num_heads not in (None, beta.shape[-1]):
        assert log_decay is None, "no rule has several writes of a token and gates"
        by_write = beta.unflatten(-1, (num_heads, -1)).movedim(-1, 2)
        logs = log_contributions(Gates(by_write.flatten(1, 2), None), erases=erases)
        return logs.squeeze(-1).unflatten(1, by_write.shape[1:3]).movedim(2, -1)
    log_decays = None if log_decay is None else log_decay.double()
    if beta is not None and erases:
        erased = torch.log1p(-beta.double()).unsqueeze(-1)
        log_decays = erased if log_decays is None else log_decays + erased
    written = torch.zeros(()) if beta is None else beta.double().log().unsqueeze(-1)
    if log_decays is None:
        return written
    # Sum over all later tokens, from the end and without the token itself. A difference of two
    # sums would give NaN (-inf + inf) where a state was fully erased.
    later = log_decays.flip(1).cumsum(1).roll(1, dims=1)
    later[:, 0] = 0
    return written + later.flip(1)


def contribution_ratio(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """log10 of the ratio of two checkpoints' contributions.

    Args:
        one: From `contribution`.
        other: From `contribution`, for as many tokens and the same bins.

    Returns:
        Columns layer, lookback, last, log10_ratio: positive where `one` keeps more. Layers that
        only one of the two has are left out.

    Raises:
        DataError: The two have no layer and lookback in common.

    Example:
        >>> import torch
        >>> from tabicl_linear.analysis import Gates, contribution, contribution_ratio
        >>> slow, fast = (contribution([Gates(torch.full((1, 3, 1), b), None)]) for b in (0.1, 0.5))
        >>> contribution_ratio(slow, fast)["log10_ratio"].round(2).to_list()
        [-0.7, -0.44, -0.19]
    """
    keys = ["layer", "lookback", "last"]
    both = one.merge(other, on=keys, suffixes=("", "_other"))
    if both.empty:
        raise DataError(
            "The contributions have no layer and lookback in common; record both checkpoints on "
            "contexts of one length."
        )
    both["log10_ratio"] = both["log10_contribution"] - both["log10_contribution_other"]
    return both[[*keys, "log10_ratio"]]


def _profile(logs: Tensor, layer: int, num_bins: int | None) -> pd.DataFrame:
    """The table of one layer: means of exp(logs) over bins of lookbacks, and their logarithms."""
    edges = bin_edges(logs.shape[1], num_bins)
    values = np.array(
        [
            float(torch.logsumexp(logs[:, a:b].flatten(), 0)) - math.log(logs[:, a:b].numel())
            for a, b in pairwise(edges)
        ]
    )
    columns = {"layer": layer, "lookback": edges[:-1], "last": edges[1:] - 1}
    return pd.DataFrame(
        {**columns, "contribution": np.exp(values), "log10_contribution": values / math.log(10)}
    )

"""What states and write rates do as contexts grow (figure 3, appendices D.6 and D.7)."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch

from experiments.study.measures.lengths import columns_of
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear.analysis.contributions import contribution
from tabicl_linear.analysis.probe_tasks import Probe, draw_probe
from tabicl_linear.analysis.rate_profiles import write_rates
from tabicl_linear.analysis.state_drift import drift
from tabicl_linear.analysis.states import matrices
from tabicl_linear.analysis.streams import Gates, by_task, gates, record_streams
from tabicl_linear.errors import NotInModel
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.model import InContextModel
from tabicl_linear.priors.tabpfn_v1 import TabPFNv1Prior

NUM_BINS = 32
STATES = ("frobenius", "effective_rank", "cosine")
COLUMNS = ["quantity", "layer", "head", "num_rows", "task", "value"]


@torch.no_grad()
def measure(checkpoint: Path, scale: Scale, device: str) -> pd.DataFrame:
    """Columns quantity, layer, head, num_rows, task, value.

    - write_rate, kept: effective write rate and decay gate of the longest context, means over heads
      (head 0) and over the positions of a bin, of which `num_rows` is the last.
    - log10_contribution: of how much of a token is left in the state of the longest context (C_s),
      the mean over a bin of lookbacks, of which `num_rows` is the last (the last token's is 1).
    - frobenius, effective_rank: of the state after `num_rows` rows, means over cells.
    - cosine_drift: cosine of that state to the one after the trained number of rows.

    Empty for models that have none of it.
    """
    model, about = load_model(checkpoint).to(device), scale.looks
    probe = draw_probe(
        TabPFNv1Prior(),
        about["rows"],
        trained=scale.trained_rows,
        num_tasks=about["tasks"],
        feature_range=(1, columns_of(scale.lengths, model)),
        max_classes=scale.lengths["classes"],
    ).to(torch.device(device))
    with record_streams(model, keep=gates) as recorded:
        probe.fit(model, about["rows"][-1])
    by_tasks = [
        [_of_task(layer, task, len(probe.x)) for layer in recorded.layers]
        for task in range(len(probe.x))
    ]
    mixer = model.backbone.layers()[0].mixer
    parts = [*_rates(by_tasks), *_contributions(by_tasks, mixer), *_states(model, probe, scale)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def _rates(by_tasks: Sequence[Sequence[Gates]]) -> list[pd.DataFrame]:
    try:
        parts = [
            write_rates(layers, num_tasks=1, num_bins=NUM_BINS).assign(task=task)
            for task, layers in enumerate(by_tasks, start=1)
        ]
    except NotInModel:
        return []
    table = pd.concat(parts, ignore_index=True)
    table = table.rename(columns={"gate": "quantity", "last": "num_rows", "mean": "value"})
    table["num_rows"] += 1
    return [table.assign(head=0)[COLUMNS]]


def _contributions(by_tasks: Sequence[Sequence[Gates]], mixer: SequenceMixer) -> list[pd.DataFrame]:
    of_mixer = {"erases": mixer.rule.erases, "num_heads": mixer.num_heads}
    try:
        parts = [
            contribution(layers, **of_mixer, num_tasks=1, num_bins=NUM_BINS).assign(task=task)
            for task, layers in enumerate(by_tasks, start=1)
        ]
    except NotInModel:
        return []
    table = pd.concat(parts, ignore_index=True)
    table = table.rename(columns={"last": "num_rows", "log10_contribution": "value"})
    table["num_rows"] += 1
    return [table.assign(quantity="log10_contribution", head=0)[COLUMNS]]


def _of_task(layer: Gates, task: int, count: int) -> Gates:
    return Gates(*(None if z is None else by_task(z, count)[task] for z in layer))


def _states(model: InContextModel, probe: Probe, scale: Scale) -> list[pd.DataFrame]:
    lengths = sorted({*scale.looks["rows"], scale.trained_rows})
    states = {length: matrices(model, probe.fit(model, length)) for length in lengths}
    try:
        table = drift(states, reference=scale.trained_rows, num_tasks=len(probe.x))
    except NotInModel:
        return []
    table = table[table["form"] == "state"]
    means = table.groupby(["layer", "head", "length", "task"], as_index=False)[list(STATES)].mean()
    long = means.rename(columns={"length": "num_rows", "cosine": "cosine_drift"}).melt(
        ["layer", "head", "num_rows", "task"], var_name="quantity"
    )
    return [long[COLUMNS]]

"""All analyses of one model on one probe."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pandas as pd
import torch

from tabicl_linear.analysis.contributions import contribution
from tabicl_linear.analysis.length_scores import length_scores
from tabicl_linear.analysis.probe_tasks import REFERENCE, Probe, default_lengths
from tabicl_linear.analysis.rate_profiles import write_rates
from tabicl_linear.analysis.ridge_targets import ridge_target
from tabicl_linear.analysis.row_order import order_sensitivity
from tabicl_linear.analysis.state_drift import drift
from tabicl_linear.analysis.states import matrices
from tabicl_linear.analysis.streams import gates, record_streams
from tabicl_linear.errors import NotInModel
from tabicl_linear.model import InContextModel

NUM_BINS = 64


class Inspection(NamedTuple):
    """The results of all analyses of a model.

    Attributes:
        name: Name of the checkpoint.
        model: The model.
        tables: The table of each analysis, by its name.
        absent: Why the model has no table for an analysis, by its name.
    """

    name: str
    model: InContextModel
    tables: dict[str, pd.DataFrame]
    absent: dict[str, str]


class Plan(NamedTuple):
    """What the analyses look at.

    Attributes:
        probe: The tasks.
        lengths: Context lengths in rows, increasing.
        reference: The one of `lengths` at which profiles, contributions and ridge targets are
            computed, and with which states at the other lengths are compared.
    """

    probe: Probe
    lengths: Sequence[int]
    reference: int


def plan_lengths(
    models: Sequence[InContextModel], most: int | None = None
) -> tuple[list[int], int]:
    """Context lengths in rows around what models were trained on, and the reference among them.

    Args:
        models: All models to be compared.
        most: Available rows; None for no limit.
    """
    trained = max((model.longest_context or REFERENCE) for model in models)
    lengths = [n for n in default_lengths(trained) if most is None or n <= most]
    if most is not None and (not lengths or most < trained):
        lengths.append(most)
    lengths = sorted(set(lengths))
    return lengths, max(n for n in lengths if n <= max(trained, lengths[0]))


def _scores(model: InContextModel, plan: Plan) -> pd.DataFrame:
    return length_scores(model, plan.probe, plan.lengths)


def _drift(model: InContextModel, plan: Plan) -> pd.DataFrame:
    probe = plan.probe
    states = {n: matrices(model, probe.fit(model, n)) for n in plan.lengths}
    return drift(states, reference=plan.reference, num_tasks=len(probe.x))


def _write_rates(model: InContextModel, plan: Plan) -> pd.DataFrame:
    with record_streams(model, keep=gates) as recorded:
        plan.probe.fit(model, plan.reference)
    return write_rates(recorded.layers, num_tasks=len(plan.probe.x), num_bins=NUM_BINS)


def _contribution(model: InContextModel, plan: Plan) -> pd.DataFrame:
    with record_streams(model, keep=gates) as recorded:
        plan.probe.fit(model, plan.reference)
    mixer = model.backbone.layers()[0].mixer
    return contribution(
        recorded.layers, erases=mixer.rule.erases, num_heads=mixer.num_heads, num_bins=NUM_BINS
    )


def _ridge_target(model: InContextModel, plan: Plan) -> pd.DataFrame:
    with record_streams(model) as recorded:
        state = plan.probe.fit(model, plan.reference)
    return ridge_target(recorded.layers, matrices(model, state), num_tasks=len(plan.probe.x))


def _order_sensitivity(model: InContextModel, plan: Plan) -> pd.DataFrame:
    probe = plan.probe
    x, y = probe.context(plan.reference)
    return order_sensitivity(model, x, y, probe.queries[0], categorical=probe.categorical)


ANALYSES: dict[str, Callable[[InContextModel, Plan], pd.DataFrame]] = {
    "scores": _scores,
    "drift": _drift,
    "write_rates": _write_rates,
    "contribution": _contribution,
    "ridge_target": _ridge_target,
    "order_sensitivity": _order_sensitivity,
}


def inspect_model(
    name: str,
    model: InContextModel,
    plan: Plan,
    *,
    only: Sequence[str] = (),
    say: Callable[[str], Any] = lambda what: None,
) -> Inspection:
    """Run all analyses, or only some.

    Args:
        name: Name of the checkpoint.
        model: The model.
        plan: What to look at.
        only: Names of `ANALYSES` to run; if empty, all that apply to the model.
        say: Called with a line after each analysis, about its duration.

    Raises:
        NotInModel: An analysis named in `only` does not apply to the model.
    """
    tables, absent = {}, {}
    for analysis in only or ANALYSES:
        began = time.monotonic()
        try:
            with torch.no_grad():
                tables[analysis] = ANALYSES[analysis](model, plan)
        except NotInModel as error:
            if only:
                raise
            absent[analysis] = str(error)
        say(f"{name}: {analysis.replace('_', ' ')}, {time.monotonic() - began:.1f} s")
    return Inspection(name, model, tables, absent)

"""An inspection in ten lines."""

from collections.abc import Callable, Collection, Sequence

import pandas as pd

from tabicl_linear.analysis.inspection import Inspection, Plan
from tabicl_linear.analysis.rate_profiles import WRITE_RATE, token_means
from tabicl_linear.errors import counted

DRIFTED = 0.9
"""States count as drifted if their cosine to the reference, mean over layers, is below this."""
FULL = 0.9
"""A layer counts as saturated from this effective rank on, as a share of the largest possible."""
SHUT, OPEN = 0.01, 0.99
"""A layer also counts as saturated if its late write rate is outside of this range."""
LATE = 0.9
"""Tokens after this share of the context are late."""
NOTHING_LONGER = "not known: no length beyond the reference"
"""Stands for drift, which can only be seen beyond the reference."""


def summarise(inspections: Sequence[Inspection], plan: Plan) -> list[str]:
    """Ten lines about the checkpoints, with a column for each.

    Args:
        inspections: Inspections of one or more checkpoints, on the same plan.
        plan: What was looked at.
    """
    facts: dict[str, Callable[[Inspection, Plan], str]] = {
        "model": _model,
        "trained on": _trained,
        "looked at": _looked_at,
        "ROC-AUC": _scores,
        "drift begins": _drift_begins,
        "drifts most": _drifts_most,
        "write rates": _write_rates,
        "saturated": _saturated,
        "remembers": _remembers,
        "order of rows": _order,
    }
    columns = [[fact(one, plan) for fact in facts.values()] for one in inspections]
    widths = [max(map(len, column)) for column in columns]
    return [
        f"{label:<14}"
        + "  |  ".join(f"{t:<{w}}" for t, w in zip(row, widths, strict=True)).rstrip()
        for label, row in zip(facts, zip(*columns, strict=True), strict=True)
    ]


def saturated_layers(one: Inspection, plan: Plan) -> dict[int, str]:
    """Layers that are saturated, and why.

    Either the effective rank at the reference length is at least 90 % of what the state's shape
    allows; or, under rules that erase, the mean write rate of the last tenth of that context is
    below 0.01 or above 0.99.
    """
    reasons: dict[int, list[str]] = {}
    if "drift" in one.tables:
        table = one.tables["drift"]
        states = table[(table["length"] == plan.reference) & (table["form"] == "state")]
        for layer, rank in states.groupby("layer")["effective_rank"].mean().items():
            limit = min(one.model.backbone.layers()[layer - 1].mixer.state_shape[1:])
            if rank >= FULL * limit:
                reasons.setdefault(layer, []).append(f"rank {rank:.0f} of {limit}")
    if "write_rates" in one.tables:
        for layer, rate in _late_rates(one.tables["write_rates"]).items():
            # Without erasing, a write rate is not a share: Mamba-2's step sizes start at 0.001.
            erases = one.model.backbone.layers()[layer - 1].mixer.rule.erases
            if erases and not SHUT <= rate <= OPEN:
                reasons.setdefault(layer, []).append(f"writes {rate:.3f}")
    return {layer: ", ".join(why) for layer, why in sorted(reasons.items())}


def _model(one: Inspection, plan: Plan) -> str:
    blocks = one.model.backbone.layers()
    mixer, readout = type(blocks[0].mixer).__name__, type(blocks[0].readout).__name__
    size = sum(parameter.numel() for parameter in one.model.parameters())
    return (
        f"{one.name}: {mixer}, {readout}, {counted(len(blocks), 'layer')} x "
        f"{counted(blocks[0].mixer.num_heads, 'head')}, "
        f"width {one.model.architecture.dim}, {size:,} parameters"
    )


def _trained(one: Inspection, plan: Plan) -> str:
    provenance = one.model.provenance
    rows = provenance.get("trained_rows")
    if rows is None:
        return "not known: the file does not say"
    steps = counted(provenance.get("steps", 0), "step")
    return f"{rows[0]:,} to {counted(rows[1], 'row')} of context, {steps}"


def _looked_at(one: Inspection, plan: Plan) -> str:
    tasks, _, columns = plan.probe.x.shape
    return (
        f"{counted(tasks, 'task')} of {counted(columns, 'column')}, "
        f"{plan.lengths[0]:,} to {plan.lengths[-1]:,} rows, reference {plan.reference:,}"
    )


def _scores(one: Inspection, plan: Plan) -> str:
    if "scores" not in one.tables:
        return "not looked at"
    means = one.tables["scores"].groupby("length")["roc_auc"].mean()
    if means.isna().all():
        return "not defined: the queries have one class"
    best = means.idxmax()
    last = plan.lengths[-1]
    longest = "" if last == plan.reference else f", {means[last]:.4f} at {last:,}"
    return (
        f"{means[plan.reference]:.4f} at {plan.reference:,} rows{longest}, "
        f"best {means[best]:.4f} at {best:,}"
    )


def _drift_begins(one: Inspection, plan: Plan) -> str:
    if "drift" not in one.tables:
        return _none(one, "drift", "no matrix state")
    if plan.lengths[-1] == plan.reference:
        return NOTHING_LONGER
    table = one.tables["drift"]
    means = table.groupby("length")["cosine"].mean()
    longer = means[(means.index > plan.reference) & (means < DRIFTED)]
    if longer.empty:
        least = means[means.index > plan.reference].min()
        return (
            f"not up to {plan.lengths[-1]:,} rows: cosine stays above {DRIFTED} (least {least:.3f})"
        )
    return f"at {longer.index[0]:,} rows: cosine {longer.iloc[0]:.3f}"


def _drifts_most(one: Inspection, plan: Plan) -> str:
    if "drift" not in one.tables:
        return _none(one, "drift", "no matrix state")
    if plan.lengths[-1] == plan.reference:
        return NOTHING_LONGER
    table = one.tables["drift"]
    means = table[table["length"] == plan.lengths[-1]].groupby("layer")["cosine"].mean()
    layer = means.idxmin()
    return f"layer {layer}: cosine {means[layer]:.3f} at {plan.lengths[-1]:,} rows"


def _write_rates(one: Inspection, plan: Plan) -> str:
    if "write_rates" not in one.tables:
        return _none(one, "write_rates", "no write rates or gates")
    rates = _late_rates(one.tables["write_rates"])
    if rates.empty:
        return "none; gates only"
    least, most = f"{rates.min():.3f}", f"{rates.max():.3f}"
    if least == most:
        return f"late tokens {least} {_all_of(rates.index)}"
    return f"late tokens from {least} (layer {rates.idxmin()}) to {most} (layer {rates.idxmax()})"


def _saturated(one: Inspection, plan: Plan) -> str:
    if not {"drift", "write_rates"} & set(one.tables):
        wanted = "drift" if "drift" not in one.absent else "write_rates"
        return _none(one, wanted, "no matrix state, no gates")
    layers = saturated_layers(one, plan)
    return "; ".join(f"layer {layer} ({why})" for layer, why in layers.items()) or "no layer"


def _remembers(one: Inspection, plan: Plan) -> str:
    if "contribution" not in one.tables:
        return _none(one, "contribution", "every token alike")
    halves = {
        layer: _half_life(part) for layer, part in one.tables["contribution"].groupby("layer")
    }
    short, long = min(halves, key=halves.__getitem__), max(halves, key=halves.__getitem__)
    least, most = f"{halves[short]:,}", counted(halves[long], "token")
    if halves[short] == halves[long]:
        return f"half of a state's weight is of the last {most} {_all_of(halves)}"
    return (
        f"half of a state's weight is of the last {least} (layer {short}) to {most} (layer {long})"
    )


def _half_life(part: pd.DataFrame) -> int:
    """The number of latest tokens that together contribute half of the sum."""
    weight = (part["contribution"] * (part["last"] - part["lookback"] + 1)).cumsum()
    if weight.iloc[-1] <= 0:
        return 0
    reached = (weight >= weight.iloc[-1] / 2).to_numpy().argmax()
    return int(part["last"].iloc[reached]) + 1


def _order(one: Inspection, plan: Plan) -> str:
    if "order_sensitivity" not in one.tables:
        return "not looked at"
    table = one.tables["order_sensitivity"]
    return (
        f"moves predictions by {table['total_variation'].mean():.4f} (total variation), "
        f"{table['agreement'].mean():.1%} agree on the class"
    )


def _all_of(layers: Collection[int]) -> str:
    """Words for where a value occurs that all of these layers share."""
    return f"(layer {min(layers)})" if len(layers) == 1 else f"in all {len(layers)} layers"


def _none(one: Inspection, analysis: str, what: str) -> str:
    return f"not applicable: {what}" if analysis in one.absent else "not looked at"


def _late_rates(table: pd.DataFrame) -> pd.Series:
    rates = table[table["gate"] == WRITE_RATE]
    return token_means(rates[rates["last"] >= LATE * rates["last"].max()], "layer")

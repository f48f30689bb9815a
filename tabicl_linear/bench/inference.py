"""`tabicl-linear bench fit` and `predict`: time and memory against rows of context."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tabicl_linear.bench import inference_tables
from tabicl_linear.bench.cases import Case, Options, measure
from tabicl_linear.bench.inference_tables import QUERIES, SOFTMAX
from tabicl_linear.bench.measurement_tables import Report
from tabicl_linear.bench.training import noise
from tabicl_linear.config import build_task
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import ConfigError
from tabicl_linear.free_memory import free_bytes
from tabicl_linear.kernels.state import num_bytes
from tabicl_linear.model import InContextModel, InContextState

SIZES = {"fit": [1000 * 2**i for i in range(11)], "predict": [1000 * 2**i for i in range(8)]}
Models = dict[str, InContextModel]
Point = dict[str, Any]
"""A model at a context size: name, rows, bytes of state, and measurements or why it is left out."""


def build_models(configs: Sequence[Path], overrides: Sequence[str], device: torch.device) -> Models:
    """Build the model of the configs and the baseline, softmax attention of the same size.

    A softmax layer has no gates and a smaller feed-forward layer. So 5 of them have as many
    parameters as 4 layers of a recurrent model, as in the paper (15 and 12 layers).
    """
    path = configs[0].parent / f"{SOFTMAX}.yaml"
    if configs[-1].stem == SOFTMAX:
        raise ConfigError("--config: name a model to compare softmax attention with.")
    ours = build_task(*configs, overrides=overrides).model
    if not path.is_file():
        raise ConfigError(f"--config {configs[0]}: no softmax.yaml in its folder to compare with.")
    a = ours.architecture
    sizes = {"dim": a.dim, "num_heads": a.num_heads, "hidden_dim": a.hidden_dim}
    sizes |= {"depth": round(a.depth * 5 / 4), "decoder_dim": a.decoder_dim}
    same = [f"model.architecture.{name}={size}" for name, size in sizes.items()]
    # Both models get tables of the same size (`Meter`).
    shapes = {"max_features": a.num_features, "max_classes": a.num_classes}
    same += [f"data.shapes.{name}={size}" for name, size in shapes.items()]
    base = build_task(path, overrides=same)
    models = {configs[-1].stem: ours, SOFTMAX: base.model}
    return {name: model.to(device).eval() for name, model in models.items()}


def run(
    options: Options,
    *,
    verb: str,
    configs: Sequence[Path],
    overrides: Sequence[str] = (),
    autocast: torch.dtype | None = None,
    sizes: Sequence[int] | None = None,
    plot: bool = False,
) -> Report:
    """Measure fitting (`verb="fit"`) or predicting (`"predict"`) at all sizes, smallest first."""
    sizes = sorted(set(sizes or ([64, 128, 256] if options.quick else SIZES[verb])))
    precision = "float32" if autocast is None else str(autocast).removeprefix("torch.")
    models = build_models(configs, overrides, options.device)
    points = inference_tables.completed(Meter(models, options, autocast).measure(sizes))
    name = f"{verb}-{configs[-1].stem}" + ("" if autocast is None else f"-{precision}")
    parameters = {n: sum(p.numel() for p in m.parameters()) for n, m in models.items()}
    settings: dict[str, Any] = {"configs": [str(c) for c in configs], "parameters": parameters}
    settings |= {"rounds": options.rounds, "budget": options.budget, "queries": QUERIES}
    note = "\n\nParameters: " + ", ".join(f"{n} {count:,}" for n, count in parameters.items()) + "."
    return Report(
        name,
        settings,
        tables=[
            inference_tables.table(verb, points, precision, note),
            inference_tables.slopes(verb, points),
        ],
        raw={"points": points.to_dict("records")},
        figure=inference_tables.draw_scaling(points) if plot else None,
    )


class Meter:
    """Measures models at several context sizes, in turn, as far as time and memory allow.

    Slow models get fewer rounds, down to the one call that measures peak memory, and none if that
    is not expected to fit into the budget.
    """

    def __init__(self, models: Models, options: Options, autocast: torch.dtype | None) -> None:
        self.models = models
        self.options = options
        self.autocast = autocast
        self.growth = {name: state_growth(model, autocast) for name, model in models.items()}

    @torch.inference_mode()
    def measure(self, sizes: Sequence[int]) -> pd.DataFrame:
        """Return a row for every model at every size, smallest size first."""
        points: list[Point] = []
        for rows in sizes:
            points += self._at(rows, points)
        return pd.DataFrame(points)

    def _at(self, rows: int, earlier: Sequence[Point]) -> list[Point]:
        points: dict[str, Point] = {}
        for name, (fixed, per_row) in self.growth.items():
            points[name] = {"name": name, "rows": rows, "state_bytes": fixed + per_row * rows}
            last = [p for p in earlier if p["name"] == name][-1:]
            points[name]["left_out"] = self._reason(points[name], per_row, *last)
        names = [name for name, point in points.items() if point["left_out"] is None]
        context, queries = (labelled(n, self.models[SOFTMAX]) for n in (rows, QUERIES))
        states: dict[str, InContextState] = {}

        def write(name: str) -> None:
            states[name] = fit(self.models[name], context, self.autocast)

        def read(name: str) -> object:
            with lowered(self.options.device, self.autocast):
                return self.models[name].predict(states[name], queries.x)

        for what, call in (("fit", write), ("predict", read)):
            measured = measure(
                [Case(name, partial(call, name)) for name in names],
                self.options,
                f"bench, {what} with {rows:,} rows of context",
                # Memory that libraries keep from their first call must not count.
                warmup=int(what == "predict" or rows <= 4096),
                least=0,
            )
            for (group, name), peak in measured.peaks.items():
                spread = measured.spread((group, name))
                took = {what: spread.median, f"{what}_spread": spread, f"{what}_peak": peak}
                points[name] |= took
        return list(points.values())

    def _reason(self, point: Point, per_row: int, last: Point | None = None) -> str | None:
        """Return why a fit is left out, judged by free memory and the last time, or None."""
        available = free_bytes(self.options.device)
        # While a cache is extended, its old and its new copy exist at once.
        if available is not None and per_row and 3 * point["state_bytes"] > available:
            return "memory"
        if last is None:
            return None
        growth = (point["rows"] / last["rows"]) ** (2 if per_row else 1)
        slow = last["left_out"] is not None or last["fit"] * growth > self.options.budget
        return "time" if slow else None


def lowered(device: torch.device, autocast: torch.dtype | None) -> torch.autocast:
    """Return a context with autocast to a dtype, or without autocast if it is None."""
    return torch.autocast(device.type, autocast, enabled=autocast is not None)


def fit(model: InContextModel, context: TaskBatch, autocast: torch.dtype | None) -> InContextState:
    """Fit a model on a context and return its state."""
    with lowered(context.x.device, autocast):
        return model.fit(context.x, context.y)


@torch.inference_mode()
def state_growth(model: InContextModel, autocast: torch.dtype | None) -> tuple[int, int]:
    """Return the bytes of a fitted state as (constant part, bytes per row of context)."""
    states = [fit(model, labelled(n, model), autocast) for n in (16, 17)]
    few, more = (num_bytes((state.layers, state.ridge)) for state in states)
    return few - 16 * (more - few), more - few


def labelled(rows: int, model: InContextModel) -> TaskBatch:
    """Return one random table with as many columns and classes as a model takes."""
    a, device = model.architecture, next(model.parameters()).device
    return noise(1, rows, a.num_features, a.num_classes, device)

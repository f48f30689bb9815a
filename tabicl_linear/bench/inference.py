"""`tabicl-linear bench fit` and `predict`: time and memory against rows of context."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tabicl_linear.bench import ceilings
from tabicl_linear.bench.contest import contest_table, raw_timings
from tabicl_linear.bench.figures import draw_scaling
from tabicl_linear.bench.inference_tables import (
    SOFTMAX,
    What,
    fit_table,
    panels,
    plain,
    predict_table,
    slopes,
    states,
)
from tabicl_linear.bench.machine import describe
from tabicl_linear.bench.matmuls import MatmulRecorder, replay
from tabicl_linear.bench.options import Options
from tabicl_linear.bench.points import QUERIES, Limits, Meter, Subject, tables
from tabicl_linear.bench.progress import ProgressLine
from tabicl_linear.bench.report import Report
from tabicl_linear.bench.timing import Contestant, compete
from tabicl_linear.config import build_task
from tabicl_linear.errors import ConfigError
from tabicl_linear.model import InContextModel

MOST_SOFTMAX_ROWS = 128_000
SIZES = {
    "fit": tuple(1000 * 2**i for i in range(11)),
    "predict": tuple(1000 * 2**i for i in range(8)),
}
QUICK_SIZES = (64, 128, 256)
CHUNK = 8000
"""Context rows of the fit whose dense products are timed alone."""

CEILING_NOTE = (
    "Medians and quartiles of as many rounds before as after all measurements above, in the same "
    "run. The dense products are those of the call above, recorded and run again without the rest."
)


def subjects(
    configs: Sequence[Path], overrides: Sequence[str], device: torch.device
) -> list[Subject]:
    """The model of the configs and softmax attention of its size.

    Softmax has no gates and a smaller feed-forward layer: with 5 layers for every 4 it has the
    parameters of the recurrent models, as in the paper (15 and 12).
    """
    ours = build_task(*configs, overrides=overrides).model
    a = ours.architecture
    sizes = {"dim": a.dim, "num_heads": a.num_heads, "hidden_dim": a.hidden_dim}
    changes = {**sizes, "depth": round(a.depth * 5 / 4)}
    path = configs[0].parent / "softmax.yaml"
    if not path.is_file():
        raise ConfigError(f"--config {configs[0]}: no softmax.yaml beside it to compare with.")
    rival = build_task(path, overrides=[f"model.architecture.{k}={v}" for k, v in changes.items()])
    name = configs[-1].stem
    if name == SOFTMAX:
        raise ConfigError("--config: name a model to compare softmax attention with.")
    return [
        Subject(name, _ready(ours, device), 2**62),
        Subject(SOFTMAX, _ready(rival.model, device), MOST_SOFTMAX_ROWS),
    ]


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
    sizes = sorted(set(sizes or (QUICK_SIZES if options.quick else SIZES[verb])))
    precision = "float32" if autocast is None else str(autocast).removeprefix("torch.")
    machine = describe(options.device)
    measured = subjects(configs, overrides, options.device)
    limits = Limits(options.rounds, options.budget, plot or verb == "predict")
    meter = Meter(options.device, autocast, limits)
    name = f"{verb}-{configs[-1].stem}" + ("" if autocast is None else f"-{precision}")
    floor = _floor(measured[0], options, autocast, verb=verb, rows=min(CHUNK, sizes[-1]))
    before = compete(floor, rounds=options.rounds, device=options.device)
    points = meter.measure(measured, sizes, ProgressLine(f"bench {name}"))
    after = compete(floor, rounds=options.rounds, device=options.device)
    timings = {key: [*seconds, *after[key]] for key, seconds in before.items()}
    per_row = floor[0].flops / floor[0].units
    what: What = "fit" if verb == "fit" else "predict"
    table = fit_table if verb == "fit" else predict_table
    parameters = {s.name: _parameters(s.model) for s in measured}
    sizes_note = ", ".join(f"{name} {count:,}" for name, count in parameters.items())
    contents = [
        table(points, per_row, precision, f"Parameters: {sizes_note}."),
        contest_table("Ceilings", "rows/s", floor, timings, {}, [CEILING_NOTE]),
        slopes(points, what),
        states(measured, options.device),
    ]
    settings: dict[str, Any] = {
        "configs": [str(c) for c in configs],
        "overrides": list(overrides),
        "autocast": str(autocast),
        "repeats": options.rounds,
        "budget": options.budget,
        "queries": QUERIES,
        "parameters": parameters,
    }
    if plot:
        figure = draw_scaling(panels(points), options.output / f"{name}.png")
        settings["figure"] = figure.name
    return Report(
        name=name,
        command=options.command,
        machine=machine,
        settings=settings,
        tables=contents,
        raw={"points": plain(points), "ceilings": raw_timings(floor, timings, {})},
    )


def _ready(model: InContextModel, device: torch.device) -> InContextModel:
    return model.to(device).eval()


def _parameters(model: InContextModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _floor(
    subject: Subject, options: Options, autocast: torch.dtype | None, *, verb: str, rows: int
) -> list[Contestant]:
    """The dense products of fitting some rows or of predicting, alone, and a large copy."""
    device = options.device
    x, y = tables(rows, subject.model, device)
    queries, _ = tables(QUERIES, subject.model, device)
    recorder = MatmulRecorder()
    with torch.no_grad(), torch.autocast(device.type, autocast, enabled=autocast is not None):
        if verb == "fit":
            with recorder:
                subject.model.fit(x, y)
        else:
            state = subject.model.fit(x, y)
            with recorder:
                subject.model.predict(state, queries)
    units = rows if verb == "fit" else QUERIES
    flops = float(sum(product.flops for product in recorder.dense))
    call = replay(recorder.dense, device)
    name = f"dense products of {subject.name} alone, {units:,} rows"
    return [
        Contestant(name, call, "ceiling", units=units, flops=flops),
        ceilings.copy(device, num_bytes=options.copy_bytes),
    ]

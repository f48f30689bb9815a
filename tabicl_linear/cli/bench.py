"""`tabicl-linear bench {prior,kernels,start,train,fit,predict}`: measure on this machine."""

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from tabicl_linear.cli.outputs import check_folder, say, writing_to
from tabicl_linear.cli.parser import OneLineArgumentParser, count, positive
from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole
from tabicl_linear.signals import ended_at_once

if TYPE_CHECKING:
    from tabicl_linear.bench.cases import Options
    from tabicl_linear.bench.measurement_tables import Report

QUICK = (
    *(f"model.architecture.{name}=32" for name in ("dim", "hidden_dim", "decoder_dim")),
    "model.architecture.depth=2",
    *("data.shapes.batch_size=2", "data.shapes.num_rows=64", "data.shapes.min_context=16"),
)
"""Overrides for a model that runs in seconds."""

Runner = Callable[["Options", argparse.Namespace], "Report"]


def main(argv: list[str]) -> int:
    """Measure, print the tables and save them as JSON and markdown; return the exit code."""
    arguments = _parser().parse_args(argv)
    check_folder(arguments.output)  # before hours of measuring, not after
    with ended_at_once():
        import torch  # takes seconds to import
        from torch.utils.benchmark import timer

        from tabicl_linear.bench.cases import Options
        from tabicl_linear.estimator.devices import resolved_device
        from tabicl_linear.machine import describe

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    options = Options(
        device=resolved_device(arguments.device),
        rounds=arguments.rounds or (3 if arguments.quick else arguments.usual_rounds),
        budget=arguments.budget,
        quick=arguments.quick,
        clock=time.process_time if arguments.cpu_time else timer,
    )
    if arguments.cpu_time and options.device.type != "cpu":
        raise ConfigError(f"--cpu-time: {options.device} computes beside it; leave it out.")
    report = replace(
        arguments.run(options, arguments),
        command=shlex.join(["tabicl-linear", "bench", *argv]),
        machine=describe(options.device),
    )
    paths = save(report, arguments.output)
    sys.stdout.write(report.markdown())
    say(f"Wrote {', '.join(map(str, paths))}")
    return 0


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="tabicl-linear bench",
        description="Measure on this machine, alternating with the usual alternatives in the same "
        "run. docs/performance.md explains the tables.",
    )
    verbs = parser.add_subparsers(required=True, metavar="{prior,kernels,start,train,fit,predict}")
    _add(verbs, "prior", partial(_plain, "prior"), 15, "datasets/s of the synthetic prior")
    _add(verbs, "start", partial(_plain, "start"), 5, "classifying small tables, beside trees")
    kernels = _add(verbs, "kernels", _kernels, 15, "the update rules, forward and backward")
    kernels.add_argument(
        "--only", nargs="+", metavar="RULE", help='these rules, such as "delta rule"'
    )
    kernels.add_argument(
        "--shape", type=count, nargs=4, metavar=("TASKS", "TOKENS", "HEADS", "DIM")
    )
    kernels.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    train = _add(verbs, "train", _train, 7, "a training step against its own matrix products")
    _add_configs(train)
    train.add_argument("--precision", nargs="+", default=["float32", "bf16"], metavar="P")
    train.add_argument(
        "--compile", action="store_true", help="also through torch.compile (takes minutes more)"
    )
    for verb, what in (
        ("fit", "reading a context, against softmax attention"),
        ("predict", "predicting rows from a context, against softmax attention"),
    ):
        inference = _add(verbs, verb, partial(_inference, verb), 5, what)
        inference.set_defaults(plot=False)
        _add_configs(inference)
        inference.add_argument("--precision", choices=("float32", "bf16"), default="float32")
        inference.add_argument("--rows", type=count, nargs="+", help="context rows to measure at")
        if verb == "fit":
            inference.add_argument("--plot", action="store_true", help="also draw the figure")
    return parser


def _add(
    verbs: "argparse._SubParsersAction[OneLineArgumentParser]",
    name: str,
    run: Runner,
    rounds: int,
    what: str,
) -> OneLineArgumentParser:
    parser: OneLineArgumentParser = verbs.add_parser(name, help=what, description=what)
    parser.set_defaults(run=run, usual_rounds=rounds)
    add = parser.add_argument
    add("--output", type=Path, default=Path("runs/bench"), help="folder of the report (runs/bench)")
    add("--device", default="cpu", help="cpu (the default) or cuda")
    add("--threads", type=count, help="threads of PyTorch; PyTorch's own choice if left out")
    add("--rounds", type=count, help=f"measured rounds, after a warm-up ({rounds})")
    add(
        "--budget",
        type=positive,
        default=30.0,
        metavar="SECONDS",
        help="time after which a case with three rounds is ended; limit for one context size (30)",
    )
    add("--cpu-time", action="store_true", help="measure CPU time, for a busy machine")
    add("--quick", action="store_true", help="small shapes; takes seconds in all")
    return parser


def _add_configs(parser: OneLineArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--config",
        type=Path,
        action="append",
        metavar="FILE",
        help="config of the model; repeat it for overlays (configs/deltanet.yaml)",
    )
    add(
        "--override",
        action="append",
        default=[],
        help="change the config, for example model.architecture.depth=2; can be repeated",
    )


def save(report: "Report", folder: Path) -> list[Path]:
    """Write NAME.json, NAME.md and any NAME.png, each whole or not at all; return their paths."""
    writers: dict[str, Callable[[Path], object]] = {
        "json": partial(Path.write_text, data=report.json()),
        "md": partial(Path.write_text, data=report.markdown()),
    }
    if report.figure is not None:
        writers["png"] = partial(report.figure.savefig, dpi=130, format="png")
    paths = [folder / f"{report.name}.{end}" for end in writers]
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path, write in zip(paths, writers.values(), strict=True):
            with written_whole(path) as temporary:
                write(temporary)
    return paths


def _plain(verb: str, options: "Options", _: argparse.Namespace) -> "Report":
    """Run `tabicl_linear.bench.VERB`, for verbs that have no options of their own."""
    report: Report = resolve_name(f"tabicl_linear.bench.{verb}:run")(options)
    return report


def _kernels(options: "Options", arguments: argparse.Namespace) -> "Report":
    import torch

    from tabicl_linear.bench.kernels import OPERATIONS, Shape, run

    names = list(dict.fromkeys(arguments.only or OPERATIONS))
    unknown = sorted(set(names) - set(OPERATIONS))
    if unknown:
        raise ConfigError(f"--only {unknown[0]!r}: choose from {', '.join(OPERATIONS)}.")
    shape = None if arguments.shape is None else Shape(*arguments.shape)
    return run(options, names=names, shape=shape, dtype=getattr(torch, arguments.dtype))


def _train(options: "Options", arguments: argparse.Namespace) -> "Report":
    from tabicl_linear.bench.train import run
    from tabicl_linear.bench.training import PRECISIONS

    unknown = sorted(set(arguments.precision) - set(PRECISIONS))
    if unknown:
        raise ConfigError(f"--precision {unknown[0]}: choose from {', '.join(PRECISIONS)}.")
    if "fp16" in arguments.precision and options.device.type == "cpu":
        raise ConfigError("--precision fp16: it is not available for training on a CPU; use bf16.")
    configs, overrides = _model(arguments)
    precisions = list(dict.fromkeys(arguments.precision))
    return run(
        options,
        configs=configs,
        overrides=overrides,
        precisions=precisions,
        compile_dense=arguments.compile,
    )


def _inference(verb: str, options: "Options", arguments: argparse.Namespace) -> "Report":
    import torch

    from tabicl_linear.bench.inference import run

    configs, overrides = _model(arguments)
    return run(
        options,
        verb=verb,
        configs=configs,
        overrides=overrides,
        autocast=torch.bfloat16 if arguments.precision == "bf16" else None,
        sizes=arguments.rows,
        plot=arguments.plot,
    )


def _model(arguments: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """Configs and overrides of the model, made small for `--quick`."""
    configs = arguments.config or [Path("configs/deltanet.yaml")]
    return configs, [*(QUICK if arguments.quick else ()), *arguments.override]

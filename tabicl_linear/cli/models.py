"""`tabicl-linear models`: every trained model of the paper, its size and the size of its state."""

import sys
from pathlib import Path

import torch

from tabicl_linear import build_task
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.state import num_bytes
from tabicl_linear.model import InContextModel
from tabicl_linear.runs import RUNS, Run

HEADER = ("name", "mixer", "strategy", "readout", "published", "parameters", "state bytes", "in")


def main(argv: list[str]) -> int:
    """Print the table as markdown; return the exit code."""
    parser = OneLineArgumentParser(prog="tabicl-linear models", description=__doc__)
    parser.add_argument("--configs", type=Path, default=Path("configs"), help="the config folder")
    folder: Path = parser.parse_args(argv).configs
    if not (folder / "deltanet.yaml").is_file():
        raise ConfigError(
            f"--configs {folder} holds no deltanet.yaml; run this in a checkout, or name its "
            "configs folder."
        )
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += [f"| {' | '.join(_row(name, run, folder))} |" for name, run in RUNS.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _row(name: str, run: Run, folder: Path) -> list[str]:
    # Without storage: only shapes matter here.
    with torch.device("meta"):
        model = build_task(*(folder / f"{overlay}.yaml" for overlay in run.overlays)).model
    block = model.backbone.layers()[0]
    embedding = {"Combined": "Comb", "Interleaved": "Int"}[type(model.strategy).__name__]
    target = {"single": "ST", "multi": "MT"}[model.strategy.target]
    return [
        name,
        type(block.mixer).__name__,
        f"{embedding}-{target}",
        type(block.readout).__name__,
        "" if run.parameters is None else f"{run.parameters:,}",
        f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        state_bytes(model),
        run.shown_in,
    ]


def state_bytes(model: InContextModel) -> str:
    """Bytes of all fitted layers for one dataset; per token or cell where they grow."""
    layers = model.backbone.layers()
    # All layers have states of one shape, and only the shape matters: any finite weights do.
    block = layers[0].to_empty(device="cpu")
    for parameter in block.parameters():
        torch.nn.init.zeros_(parameter)
    dim = model.architecture.dim
    with torch.no_grad():
        sizes = [num_bytes(block.fit(torch.zeros(1, n, dim))[1]) for n in (8, 9)]
    growth = (sizes[1] - sizes[0]) * len(layers)
    if growth:
        return f"{growth:,} per token"
    unit = " per cell of a row" if model.architecture.two_axis else ""
    return f"{sizes[0] * len(layers):,}{unit}"

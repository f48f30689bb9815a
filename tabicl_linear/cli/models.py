"""`tabicl-linear models`: every trained model of the paper, with its size and its state's size."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError
from tabicl_linear.pages import markdown
from tabicl_linear.runs import RUNS, Run
from tabicl_linear.signals import ended_at_once

if TYPE_CHECKING:
    from tabicl_linear.architecture import Architecture
    from tabicl_linear.model import InContextModel

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
    from tqdm import tqdm

    runs = tqdm(RUNS.items(), desc="models", unit="model", leave=False, disable=None)
    with ended_at_once():
        rows = [_row(name, run, folder) for name, run in runs]
    sys.stdout.write(markdown(HEADER, rows) + "\n")
    return 0


def _row(name: str, run: Run, folder: Path) -> list[str]:
    import torch  # takes seconds to import

    from tabicl_linear.config import build_task

    # On the meta device, as only the shapes of parameters matter here.
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


def state_bytes(model: "InContextModel") -> str:
    """Bytes of the fitted state of one dataset, as text.

    Where it grows with the context, the bytes per token; with cell embeddings, per cell of a row.
    """
    import torch

    from tabicl_linear.kernels.state import num_bytes

    layers = model.backbone.layers()
    # All layers have states of the same shape, and the weights do not change it: zeros will do.
    block = layers[0].to_empty(device="cpu")
    for parameter in block.parameters():
        torch.nn.init.zeros_(parameter)
    dim = model.architecture.dim
    with torch.no_grad():
        sizes = [num_bytes(block.fit(torch.zeros(1, n, dim))[1]) for n in (8, 9)]
    ridge = _ridge_bytes(model.architecture)
    growth = (sizes[1] - sizes[0]) * len(layers)
    unit = " per token" if growth else " per cell of a row" if model.architecture.cells else ""
    of_layers = growth or sizes[0] * len(layers)
    if not unit:
        return f"{of_layers + ridge:,}"
    return f"{of_layers:,}{unit}" + (f" + {ridge:,}" if ridge else "")


def _ridge_bytes(architecture: "Architecture") -> int:
    """Bytes of the ridge inputs' state for a table with all columns and any number of rows."""
    import torch

    from tabicl_linear.embedding.statistics import context_statistics
    from tabicl_linear.kernels.state import num_bytes

    ridge = architecture.make_ridge_inputs()
    if ridge is None:
        return 0
    x, y = torch.zeros(1, 2, architecture.num_features), torch.tensor([[0, 1]])
    numbers = torch.zeros(1, architecture.num_features, dtype=torch.bool)
    statistics = context_statistics(x, y, numbers, num_features=None)
    return num_bytes(ridge.open(x, y, statistics).state)

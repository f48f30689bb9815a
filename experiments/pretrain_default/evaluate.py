"""Score a checkpoint on the fixed synthetic validation set, with several context lengths.

    python -m experiments.pretrain_default.evaluate runs/default/version_0/last.ckpt

All legs and all comparisons use the same tasks: TabPFN v1 prior, a network per dataset, drawn on
the CPU from the validation stream (which does not depend on a run's seed), equally many per length.
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd
import torch

from tabicl_linear import load_model, pages
from tabicl_linear.config import build_data
from tabicl_linear.errors import CheckpointError
from tabicl_linear.files import written_whole
from tabicl_linear.model import InContextModel
from tabicl_linear.training.scores import MeanScores, score

CONTEXT_ROWS = (64, 256, 1024, 4096)
TASKS = 64
"""Number of tasks for each length."""
QUERY_ROWS = 128
BATCH_ROWS = 16_384
"""Maximum number of rows in one call of the model."""
SCORES = ("loss", "accuracy", "roc_auc")


@torch.inference_mode()
def evaluate(
    model: InContextModel,
    *,
    lengths: tuple[int, ...] = CONTEXT_ROWS,
    tasks: int = TASKS,
    device: torch.device | str = "cpu",
) -> pd.DataFrame:
    """Mean scores over `tasks` tasks of every context length, and over all: a row each."""
    model = model.to(device).eval()
    rows = []
    for context in lengths:
        means = _score_length(model, context, tasks, torch.device(device))
        rows.append({"context": str(context), **means})
    table = pd.DataFrame(rows).set_index("context")
    table.loc["mean"] = table.mean()
    return table


def _score_length(
    model: InContextModel, context: int, tasks: int, device: torch.device
) -> dict[str, float]:
    num_rows = context + QUERY_ROWS
    size = max(1, min(tasks, 8, BATCH_ROWS // num_rows))
    shapes = {
        "batch_size": size,
        "num_rows": num_rows,
        "num_queries": QUERY_ROWS,
        "min_context": 16,
    }
    data = build_data(overrides=[f"data.shapes.{key}={value}" for key, value in shapes.items()])
    stream = data.stream("validate")
    means = MeanScores().to(device)
    for index in range(-(-tasks // size)):
        batch = stream.batch(index).to(device)
        x, queries = batch.x.tensor_split([context], dim=1)
        state = model.fit(x, batch.y[:, :context], categorical=batch.categorical)
        means.update(score(model.predict(state, queries), batch.y[:, context:]))
    named = means.named("val")
    return {name: float(named[f"val/{name}"].compute()) for name in SCORES}


def markdown(table: pd.DataFrame) -> str:
    """The table as markdown."""
    rows = [
        [str(name), *(f"{value:.4f}" for value in row)]
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    return pages.markdown(["context rows", *table.columns], rows)


def main(argv: list[str] | None = None) -> int:
    """Print the scores of a checkpoint, and optionally write them to a file; 2 if it is none."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tasks", type=int, default=TASKS, help="for each length")
    parser.add_argument("--lengths", type=int, nargs="+", default=CONTEXT_ROWS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, help="also write the scores here, as JSON")
    arguments = parser.parse_args(argv)
    try:
        model = load_model(arguments.checkpoint)
    except CheckpointError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    table = evaluate(
        model,
        lengths=tuple(arguments.lengths),
        tasks=arguments.tasks,
        device=arguments.device,
    )
    if arguments.output is not None:
        with written_whole(arguments.output) as partial:
            partial.write_text(json.dumps(table.to_dict(orient="index"), indent=1) + "\n")
    print(markdown(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())

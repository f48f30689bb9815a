"""Draw tables of two columns from each prior, rows coloured by class, to show their labels.

python -m experiments.prior_tables.run --output docs/images/prior_tables.png
"""

import argparse
from pathlib import Path

import matplotlib
import torch

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from tabicl_linear.files import written_whole
from tabicl_linear.priors import Prior, TabPFNv1Prior, TaskShape, TreePrior, WithTableEffects

PRIORS: dict[str, Prior] = {
    "TabPFN v1": TabPFNv1Prior(),
    "trees": TreePrior(max_categories=12),
    "trees with effects": WithTableEffects(
        TreePrior(max_categories=12), distorted=1.0, imbalanced=1.0, redundant=0.0
    ),
}
LARGEST = 4.0
JITTER = 0.5


def draw(output: Path, *, tables: int, rows: int, seed: int) -> None:
    """Write a figure with a row of tables for each prior."""
    size = (1.55 * tables, 1.6 * len(PRIORS))
    figure, axes = plt.subplots(len(PRIORS), tables, figsize=size, constrained_layout=True)
    for line, (name, prior) in zip(axes, PRIORS.items(), strict=True):
        generator = torch.Generator().manual_seed(seed)
        tasks = prior.sample_tasks(TaskShape(tables, rows, rows // 2, 2, 5), generator)
        noise = torch.rand(tasks.x.shape, generator=generator) - 0.5
        # Codes are whole numbers: without jitter, rows would cover each other.
        x = tasks.x + JITTER * noise * tasks.categorical.unsqueeze(1)
        shown = x.where(tasks.categorical.unsqueeze(1), x.clamp(-LARGEST, LARGEST))
        line[0].set_ylabel(name)
        for axis, points, labels in zip(line, shown, tasks.y, strict=True):
            axis.scatter(*points.T, c=labels, s=2, cmap="tab10", vmin=0, vmax=9, linewidths=0)
            axis.set(xticks=[], yticks=[])
    with written_whole(output) as partial:
        figure.savefig(partial, dpi=90, format="png", pil_kwargs={"optimize": True})
    plt.close(figure)


def main() -> None:
    """Read the command line and write the figure."""
    parser = argparse.ArgumentParser(description="Draw tables from each prior.")
    parser.add_argument("--output", type=Path, required=True, help="PNG file to write")
    parser.add_argument("--tables", type=int, default=6, help="tables of each prior")
    parser.add_argument("--rows", type=int, default=500, help="rows of a table")
    parser.add_argument("--seed", type=int, default=2, help="seed of the tables")
    arguments = parser.parse_args()
    draw(arguments.output, tables=arguments.tables, rows=arguments.rows, seed=arguments.seed)


if __name__ == "__main__":
    main()

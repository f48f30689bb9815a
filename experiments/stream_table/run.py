"""Write a long table from the prior to Parquet, for `tabicl-linear predict --stream`.

python -m experiments.stream_table.run --rows 1000000 --output long.parquet

The table is one task of the prior of trees, so that it is as hard as those of pretraining. A prior
makes a task at once, in memory: several gigabytes for a million rows.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch

from tabicl_linear.files import written_whole
from tabicl_linear.priors import TaskShape, TreePrior


def table(rows: int, columns: int, classes: int, seed: int) -> pd.DataFrame:
    """Numbers and category codes, with the label in the last column, `y`."""
    generator = torch.Generator().manual_seed(seed)
    shape = TaskShape(1, rows, rows // 2, columns, classes)
    task = TreePrior(max_categories=12).sample_tasks(shape, generator)
    frame = pd.DataFrame(
        {f"x{i}": task.x[0, :, i].numpy() for i in range(task.x.shape[2])},
    )
    for i in task.categorical[0].nonzero().flatten().tolist():
        frame[f"x{i}"] = frame[f"x{i}"].astype("int64").astype("str")
    frame["y"] = task.y[0].numpy()
    return frame


def main() -> None:
    """Read the command line and write the table."""
    parser = argparse.ArgumentParser(description="Write a long table from the prior.")
    parser.add_argument("--output", type=Path, required=True, help="Parquet file to write")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (default: 1000000)")
    parser.add_argument("--columns", type=int, default=20, help="columns (default: 20)")
    parser.add_argument("--classes", type=int, default=3, help="classes (default: 3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the task (default: 0)")
    arguments = parser.parse_args()
    frame = table(arguments.rows, arguments.columns, arguments.classes, arguments.seed)
    with written_whole(arguments.output) as partial:
        frame.to_parquet(partial, index=False)


if __name__ == "__main__":
    main()

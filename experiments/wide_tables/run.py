"""Make wide tables of the development tables, which have at most 64 columns themselves.

    python -m experiments.wide_tables.run --tables FOLDER --columns 400 --output runs/wide_tables
    python -m experiments.development.run --model default --tables runs/wide_tables

Each table becomes five: its columns beside copies of them in which rows have changed places, so
that these say nothing; beside products of two of its numeric columns; and, in their place, random
sums of its numeric columns with noise, each of which says a little, with so much noise that each
says next to nothing, and what a random network of one hidden layer makes of them (embeddings).
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.development.tables import INDEX, Table, load_tables
from tabicl_linear.errors import ConfigError, DataError

TABLES = ("satimage", "segment", "waveform-5000", "spambase", "wall-robot-navigation", "phoneme")
NOISE, MUCH_NOISE = 0.5, 4.0
"""Standard deviations of what is added to a sum of variance one."""
HIDDEN = 256
"""Units of the network that makes embeddings."""

Widen = Callable[[pd.DataFrame, int, np.random.Generator], pd.DataFrame]


def _numbers(table: pd.DataFrame) -> np.ndarray:
    """Its numeric columns, standardised; a missing cell is the mean."""
    columns = table.select_dtypes("number").astype(float)
    deviations = columns.std().replace(0.0, 1.0)
    return ((columns - columns.mean()) / deviations).fillna(0.0).to_numpy()


def with_noise(table: pd.DataFrame, width: int, rng: np.random.Generator) -> pd.DataFrame:
    """The table beside its own columns with rows in random orders."""
    count = max(width - table.shape[1], 0)
    copies = [table.iloc[:, number % table.shape[1]] for number in range(count)]
    noise = {
        f"noise {number}": column.to_numpy()[rng.permutation(len(table))]
        for number, column in enumerate(copies)
    }
    return pd.concat([table, pd.DataFrame(noise, index=table.index)], axis=1)


def with_products(table: pd.DataFrame, width: int, rng: np.random.Generator) -> pd.DataFrame:
    """The table beside products of two numeric columns, those that there are at most."""
    numbers = _numbers(table)
    first, second = np.triu_indices(numbers.shape[1])
    count = min(max(width - table.shape[1], 0), len(first))
    drawn = rng.permutation(len(first))[:count]
    products = numbers[:, first[drawn]] * numbers[:, second[drawn]]
    names = [f"product {number}" for number in range(count)]
    return pd.concat([table, pd.DataFrame(products, table.index, names)], axis=1)


def sums(
    table: pd.DataFrame, width: int, rng: np.random.Generator, *, noise: float = NOISE
) -> pd.DataFrame:
    """Sums of all numeric columns with random weights, and noise, in place of the columns."""
    numbers = _numbers(table)
    weights = rng.normal(size=(numbers.shape[1], width)) / numbers.shape[1] ** 0.5
    added = noise * rng.normal(size=(len(numbers), width))
    names = [f"sum {number}" for number in range(width)]
    return pd.DataFrame(numbers @ weights + added, table.index, names)


def embeddings(table: pd.DataFrame, width: int, rng: np.random.Generator) -> pd.DataFrame:
    """Outputs of a random network that reads all numeric columns, in place of the columns."""
    numbers = _numbers(table)
    weights = rng.normal(size=(numbers.shape[1], HIDDEN)) / numbers.shape[1] ** 0.5
    hidden = np.tanh(numbers @ weights + rng.normal(size=HIDDEN))
    outputs = hidden @ rng.normal(size=(HIDDEN, width)) / HIDDEN**0.5
    return pd.DataFrame(outputs, table.index, [f"output {number}" for number in range(width)])


KINDS: dict[str, Widen] = {
    "noise": with_noise,
    "products": with_products,
    "sums": sums,
    "weak": partial(sums, noise=MUCH_NOISE),
    "embeddings": embeddings,
}


def written(table: Table, width: int, folder: Path) -> list[dict[str, str]]:
    """Write the wide tables of a table; return their rows of the index."""
    rows = []
    for number, (kind, widen) in enumerate(KINDS.items()):
        name = f"{table.name}-{kind}-{width}"
        x = widen(table.x, width, np.random.default_rng(number))
        x.columns = x.columns.astype(str)
        x.assign(target=table.y.astype(str)).to_parquet(folder / f"{name}.parquet")
        rows.append({"name": name, "file": f"{name}.parquet", "target_column": "target"})
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Write a folder of tables; 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, help="folder of the development tables")
    parser.add_argument("--only", nargs="+", default=list(TABLES), help="names of tables")
    parser.add_argument("--columns", type=int, default=400, help="of each wide table")
    parser.add_argument("--output", type=Path, default=Path("runs/wide_tables"))
    arguments = parser.parse_args(argv)
    try:
        tables = load_tables(arguments.tables, arguments.only)
    except (ConfigError, DataError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    arguments.output.mkdir(parents=True, exist_ok=True)
    rows = [row for table in tables for row in written(table, arguments.columns, arguments.output)]
    pd.DataFrame(rows).to_csv(arguments.output / INDEX, index=False)
    print(f"{len(rows)} tables of {arguments.columns} columns  {arguments.output / INDEX}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The paper's tables of means: what its authors printed, to stand beside what was measured here."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

import pandas as pd

ROWS = "published.csv"


class Benchmark(NamedTuple):
    """A benchmark of the paper.

    Attributes:
        key: In `published.csv`, and in what `evaluate` writes.
        title: As the paper writes it.
        num_datasets: Over which its means are.
    """

    key: str
    title: str
    num_datasets: int


CC18 = Benchmark("openml-cc18", "OpenML-CC18*", 30)
TABARENA = Benchmark("tabarena", "TabArena*", 38)
BENCHMARKS = {benchmark.key: benchmark for benchmark in (CC18, TABARENA)}

TITLES = {
    1: "training setups",
    2: "sequence mixers",
    3: "DeltaNet variants",
    8: "full comparison on OpenML-CC18*",
    9: "full comparison on TabArena*",
}


class Mean(NamedTuple):
    """A printed mean.

    Attributes:
        value: To four decimals.
        letters: Of the bars beside it.
    """

    value: float
    letters: str


class PublishedModel(NamedTuple):
    """A row of one of the paper's tables.

    Attributes:
        run: Name of the model here; in Table 1 that of the strategy.
        name: As the paper prints it.
        controlled: False for the released baselines of Table 2.
        length: Of the sequence, relative to that of combined labels (Table 1).
        means: By (benchmark, metric).
    """

    run: str
    name: str
    controlled: bool
    length: str
    means: Mapping[tuple[str, str], Mean]


@cache
def tables() -> dict[int, tuple[PublishedModel, ...]]:
    """Rows of the paper's tables 1, 2, 3, 8 and 9, in their order."""
    text = resources.files(__package__).joinpath(ROWS)
    with text.open(encoding="utf-8") as file:
        frame = pd.read_csv(file, comment="#", keep_default_na=False)
    models: dict[int, tuple[PublishedModel, ...]] = {}
    for (table, run), rows in frame.groupby(["table", "run"], sort=False):
        first = rows.iloc[0]
        means = {
            (row.benchmark, row.metric): Mean(float(row.value), row.letters)
            for row in rows.itertuples()
        }
        model = PublishedModel(
            run, first["name"], first["block"] == "controlled", first["length"], means
        )
        models[int(table)] = (*models.get(int(table), ()), model)
    return models


def published_mean(run: str, benchmark: str, metric: str) -> Mean | None:
    """What the paper prints for a model, in any of its tables but the first."""
    for number in (2, 3, 8, 9):
        for model in tables()[number]:
            if model.run == run and (benchmark, metric) in model.means:
                return model.means[benchmark, metric]
    return None

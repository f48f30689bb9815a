"""The means that the paper's tables print, for comparison with those measured here."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

import pandas as pd

ROWS = "published.csv"


class Benchmark(NamedTuple):
    """A benchmark of the paper.

    Attributes:
        key: Name in `published.csv` and in the results of `evaluate`.
        title: Name as the paper writes it.
        num_datasets: Number of tables that the paper's means are over.
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
        value: The mean, to four decimals.
        letters: The letters printed with it: models that share one do not differ significantly.
    """

    value: float
    letters: str


class PublishedModel(NamedTuple):
    """A row of one of the paper's tables.

    Attributes:
        run: Name of the model in this project; in Table 1, that of the strategy.
        name: Name as the paper prints it.
        controlled: Whether the paper trains it; False for the released baselines of Table 2.
        length: Length of the sequence, relative to that with combined labels (Table 1).
        means: Printed means by (benchmark, metric).
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
    """The mean that the paper prints for a model in any table but the first; None if nowhere."""
    for number in (2, 3, 8, 9):
        for model in tables()[number]:
            if model.run == run and (benchmark, metric) in model.means:
                return model.means[benchmark, metric]
    return None

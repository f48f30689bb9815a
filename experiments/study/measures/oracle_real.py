"""The hidden-state oracle on the five largest real tables (appendix D.2)."""

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from experiments.study.measures.oracle import has_matrices, long_form
from experiments.study.measures.real import SCORES, SUITES, capped
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear.analysis.state_optimisation import OracleOptions
from tabicl_linear.evaluation.benchmarks import Benchmark, Source, folder_benchmark
from tabicl_linear.lengths.oracle_tasks import TableTasks, compare, limits
from tabicl_linear.model import InContextModel

LARGE = "large"
COUNT = 5


def measure(checkpoint: Path, scale: Scale, device: str, tables: Path) -> pd.DataFrame:
    """Columns benchmark (large), table, fold, num_rows, reading (plain or oracle) and scores.

    Single models, without an ensemble. Empty for models whose state is no matrix.
    """
    model = load_model(checkpoint).to(device)
    if not has_matrices(model):
        return pd.DataFrame(columns=["benchmark", "table", "fold", "num_rows", "reading", *SCORES])
    benchmark = capped(folder_benchmark(tables, SUITES["tabarena"]), scale.oracle_real, LARGE)
    parts = [_compared(model, benchmark, source, scale) for source in largest(benchmark)]
    return pd.concat(parts, ignore_index=True)


def largest(benchmark: Benchmark) -> list[Source]:
    """The tables with most rows, the largest first."""
    rows = {source: pq.read_metadata(source.path).num_rows for source in benchmark.sources}
    return sorted(benchmark.sources, key=lambda source: -rows[source])[:COUNT]


def _compared(
    model: InContextModel, benchmark: Benchmark, source: Source, scale: Scale
) -> pd.DataFrame:
    about = scale.oracle_real
    table = benchmark.table(source)
    tasks = TableTasks(
        table.declared(),
        pd.Series(table.y),
        folds=about["folds"],
        limits=limits({"model": model}),
    )
    how = OracleOptions(max_epochs=about["epochs"])
    wide = pd.concat(
        [compare({"model": model}, tasks, how, fold) for fold in range(about["used_folds"])]
    )
    result = long_form(wide.rename(columns={"dataset": "fold"}), ["fold", "num_rows"])
    return result.assign(benchmark=LARGE, table=source.name)

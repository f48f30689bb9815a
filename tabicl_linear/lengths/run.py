"""Options of a run of `tabicl-linear lengths`, and the readings of one dataset."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd
import torch

from tabicl_linear.analysis.state_optimisation import OracleOptions, check_model
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.lengths.datasets import DatasetOptions, LengthDataset, draw_dataset
from tabicl_linear.lengths.readings import (
    Reading,
    Statistics,
    read_blocks,
    read_oracle,
    read_prefixes,
)
from tabicl_linear.lengths.scores import METRICS, score
from tabicl_linear.model import InContextModel
from tabicl_linear.parquet import Kind
from tabicl_linear.priors.base import Prior

COLUMNS: Mapping[str, Kind] = {
    "dataset": "whole",
    "model": "text",
    "num_rows": "whole",
    **dict.fromkeys(METRICS, "number"),
    "fit_seconds": "number",
    "predict_seconds": "number",
    "checksum": "text",
}
"""Columns of the table of `read_dataset`, with their kinds."""

Models = Mapping[str, InContextModel]


@dataclass(frozen=True)
class RunOptions:
    """What is read on every dataset.

    Attributes:
        datasets: Sizes and seed of the datasets.
        blocks: Names of models that also read in blocks.
        block_rows: Most rows of a block.
        oracle: Names of models whose states are also optimised, at the longest context.
        oracle_options: How these are optimised.
        statistics: See `read_prefixes`.
    """

    datasets: DatasetOptions
    blocks: tuple[str, ...] = ()
    block_rows: int = 3000
    oracle: tuple[str, ...] = ()
    oracle_options: OracleOptions = field(default_factory=OracleOptions)
    statistics: Statistics = "longest"

    def check(self, models: Models) -> None:
        """Check that the models can do what the options ask for.

        Raises:
            ConfigError: A name belongs to no model, or states to be optimised are not matrices.
            DataError: A model does not take as many classes or columns.
        """
        for option, names in (("blocks", self.blocks), ("oracle", self.oracle)):
            for name in names:
                if name not in models:
                    raise ConfigError(
                        f"--{option} {name}: no such model; there are {', '.join(models)}."
                    )
        for name in self.oracle:
            try:
                check_model(models[name])
            except ConfigError as error:
                others = " Or name other models after --oracle." if len(models) > 1 else ""
                raise ConfigError(f"--oracle {name}: {error}{others}") from error
        check_sizes(self.datasets, models)

    def labels(self, models: Models) -> list[str]:
        """Names of all readings in the results."""
        blocks = [f"{name} in blocks of {self.block_rows}" for name in self.blocks]
        return [*models, *blocks, *(f"{name} oracle" for name in self.oracle)]

    def settings(self, checksums: Mapping[str, str]) -> dict[str, Any]:
        """Everything that decides the numbers, as plain data."""
        return {
            "datasets": asdict(self.datasets) | {"lengths": list(self.datasets.lengths)},
            "checkpoints": dict(checksums),
            "blocks": list(self.blocks),
            "block_rows": self.block_rows if self.blocks else None,
            "oracle": list(self.oracle),
            "oracle_options": asdict(self.oracle_options) if self.oracle else None,
            "statistics": self.statistics,
        }


def check_sizes(datasets: DatasetOptions, models: Models) -> None:
    """Check that all models take datasets of these sizes.

    Raises:
        DataError: A model takes fewer classes or columns.
    """
    for name, model in models.items():
        most = model.architecture
        for option, what, number, limit in (
            ("--classes", "classes", datasets.num_classes, most.num_classes),
            ("--features", "columns", datasets.num_features, most.num_features),
        ):
            if number > limit:
                raise DataError(
                    f"{name} takes at most {limit} {what}, and the datasets have {number}: "
                    f"give {option} {limit} or fewer."
                )


@torch.no_grad()
def read_dataset(
    models: Models, options: RunOptions, index: int, prior: Prior | None = None
) -> pd.DataFrame:
    """All readings of a dataset: `COLUMNS`, a row for each model (or way to read it) and length.

    The dataset is drawn from `prior`, or from the TabPFN v1 prior if left out.
    """
    on_cpu = draw_dataset(options.datasets, index, prior)
    rows = []
    for name, model in models.items():
        dataset = on_cpu.to(model.device)
        for label, reading in _readings(name, model, dataset, options):
            scores = score(reading.logits, on_cpu.targets, options.datasets.num_classes)
            seconds = {
                "fit_seconds": reading.fit_seconds,
                "predict_seconds": reading.predict_seconds,
            }
            about = {"dataset": index, "model": label, "num_rows": reading.num_rows}
            rows.append(about | scores | seconds | {"checksum": dataset.checksum})
    return pd.DataFrame(rows)


def _readings(
    name: str, model: InContextModel, dataset: LengthDataset, options: RunOptions
) -> Iterator[tuple[str, Reading]]:
    lengths = options.datasets.lengths
    for reading in read_prefixes(model, dataset, lengths, options.statistics):
        yield name, reading
    if name in options.blocks:
        for reading in read_blocks(model, dataset, lengths, options.block_rows):
            yield f"{name} in blocks of {options.block_rows}", reading
    if name in options.oracle:
        yield f"{name} oracle", read_oracle(model, dataset, lengths[-1], options.oracle_options)

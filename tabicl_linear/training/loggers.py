"""Loggers of a run folder: TensorBoard, and a CSV file that survives kills and resumes."""

import csv
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from tabicl_linear.files import written_whole
from tabicl_linear.training.metric_names import VALIDATION


class Board(TensorBoardLogger):
    """TensorBoard without the epoch, which Lightning logs but our endless stream does not have.

    Args:
        folder: The run folder.
        resumed_step: As in `MetricsFile`; TensorBoard hides what the interrupted run has logged
            from this step on.
    """

    def __init__(self, folder: Path, resumed_step: int = 0) -> None:
        purged = resumed_step or None
        super().__init__(folder, name="", version="", default_hp_metric=False, purge_step=purged)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log all but the epoch."""
        super().log_metrics({k: v for k, v in metrics.items() if k != "epoch"}, step)


class MetricsFile(Logger):
    """Writes metrics to `metrics.csv` in the run folder, a row for each step and group of metrics.

    Each row reaches the file at once. A new metric adds a column: the file is rewritten and
    replaced atomically.

    Args:
        folder: The run folder; made when the first row is written.
        resumed_step: Optimiser step of the checkpoint that the run continues from: rows of that
            step and later ones, left by the interrupted run, are dropped.
        resumed_rows: Number of rows when the checkpoint was taken. Rows of validations after them
            are dropped as well, since the resumed run repeats these validations. None if unknown.
    """

    def __init__(
        self, folder: Path, resumed_step: int = 0, resumed_rows: int | None = None
    ) -> None:
        super().__init__()
        self._path = folder / "metrics.csv"
        self._resumed_step = resumed_step
        self._resumed_rows = resumed_rows
        self._columns: list[str] = []
        self._rows = 0

    @property
    def name(self) -> str:
        """Empty: the run folder itself names the run."""
        return ""

    @property
    def version(self) -> str:
        """Empty: the run folder itself names the run."""
        return ""

    @property
    def save_dir(self) -> str:
        """The run folder."""
        return str(self._path.parent)

    @property
    def rows(self) -> int:
        """Number of rows of the file, without those that a resumed run has yet to drop."""
        return self._rows if self._columns else len(self._kept())

    @property
    @rank_zero_experiment
    def experiment(self) -> Path:
        """The file."""
        return self._path

    @rank_zero_only
    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: the run folder's config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append a row."""
        row = {"step": step, **{k: v for k, v in metrics.items() if k != "epoch"}}
        if not self._columns:
            self._open()
        new = [name for name in row if name not in self._columns]
        if new:
            self._rewrite(self._read(), [*self._columns, *new])
        with self._path.open("a", newline="") as file:
            csv.DictWriter(file, self._columns).writerow(row)
        self._rows += 1

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        rows = self._kept()
        self._rewrite(rows, list(rows[0]) if rows else ["step"])
        self._rows = len(rows)

    def _kept(self) -> list[dict[str, str]]:
        return [row for number, row in enumerate(self._read()) if self._is_kept(number, row)]

    def _is_kept(self, number: int, row: Mapping[str, str]) -> bool:
        early = self._resumed_rows is None or number < self._resumed_rows
        is_validation = any(row.get(name) for name in VALIDATION)
        return int(row["step"]) < self._resumed_step and (early or not is_validation)

    def _read(self) -> list[dict[str, str]]:
        if not self._path.exists():
            return []
        with self._path.open(newline="") as file:
            lines = file.readlines()
        # A kill can cut the last line short, even within a number, which would then look whole.
        return list(csv.DictReader(line for line in lines if line.endswith("\n")))

    def _rewrite(self, rows: list[dict[str, str]], columns: list[str]) -> None:
        with written_whole(self._path) as partial, partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        self._columns = columns

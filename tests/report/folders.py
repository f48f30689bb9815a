"""Folders as `tabicl-linear evaluate` leaves them."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import pandas as pd

from tabicl_linear.evaluation_file import COLUMNS

METRICS = ("roc_auc", "accuracy", "log_loss", "ece")
FOLDS = 2


def rows(
    model: str,
    scores: Sequence[float],
    *,
    benchmark: str = "small",
    metrics: Sequence[str] = METRICS,
    seconds: float = 1.5,
) -> pd.DataFrame:
    """A model with a score for each table, the same in all metrics; folds lie 0.01 off."""
    cells = product(enumerate(scores), range(FOLDS), metrics)
    return pd.DataFrame(
        [
            (model, benchmark, f"t{i}", i, fold, metric, score + 0.02 * fold - 0.01, seconds, "")
            for (i, score), fold, metric in cells
        ],
        columns=list(COLUMNS),
    ).astype({"value": object, "seconds": object})


def fail(frame: pd.DataFrame, dataset: str, fold: int, reason: str) -> pd.DataFrame:
    """The same, with a fold that failed."""
    here = (frame["dataset"] == dataset) & (frame["fold"] == fold)
    frame.loc[here, ["value", "seconds", "error"]] = ["", "", reason]
    return frame


def tables(count: int) -> list[dict[str, object]]:
    """Tables t0, t1, ... of 100, 200, ... rows."""
    return [
        {
            **{"name": f"t{i}", "openml_id": i, "checksum": None},
            **{"rows": 100 * (i + 1), "columns": 3, "classes": 2},
        }
        for i in range(count)
    ]


def write(
    folder: Path,
    *frames: pd.DataFrame,
    listed: Sequence[Mapping[str, object]] | None = None,
    protocol: Mapping[str, object] | None = None,
) -> Path:
    """Write both files; lists as many tables as there are, unless told."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.concat(frames)
    frame.to_csv(folder / "results.csv", index=False)
    listed = tables(frame["dataset"].nunique()) if listed is None else list(listed)
    about = {
        **{"benchmark": "any", "ensemble": "default", "models": {}},
        **{"protocol": protocol or {"folds": FOLDS}, "datasets": listed},
    }
    (folder / "evaluation.json").write_text(json.dumps(about))
    return folder

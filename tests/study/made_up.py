"""A folder of measurements of the study, as units leave them, with numbers that tests choose."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tabicl_linear.parquet import write_table

TRAINED = 128
ROWS = (128, 256, 512, 1000, 2000, 4000, 8000)
Score = Callable[[int, np.ndarray], np.ndarray]
"""ROC-AUC of datasets (their numbers are given) at a number of rows."""


def unit(root: Path, arm: str, seed: int = 0, *, scale: str = "small", **record) -> Path:
    """The folder of a trained unit."""
    identity = hashlib.sha256(f"{arm} {seed} {record}".encode()).hexdigest()[:12]
    folder = root / scale / identity
    folder.mkdir(parents=True)
    about = {"arm": arm, "seed": seed, "scale": scale, "identity": identity, "commit": 40 * "c"}
    about |= {"status": "trained", "reason": "", "parameters": 1000, "steps": 10}
    about |= {"train_seconds": 60.0, "val_loss": 1.5, "val_roc_auc": 0.7} | record
    (folder / "unit.json").write_text(json.dumps(about))
    return folder


def lengths(folder: Path, score: Score, *, datasets: int = 20, rows=ROWS, name="lengths") -> None:
    """Scores by dataset and length; accuracy lies 0.2 lower."""
    numbers = np.arange(datasets)
    parts = []
    for length in rows:
        scores = np.broadcast_to(score(length, numbers), numbers.shape)
        columns = {"dataset": numbers, "num_rows": length, "roc_auc": scores}
        parts.append(pd.DataFrame({**columns, "accuracy": scores - 0.2, "log_loss": 1.0}))
    write_table(folder / f"{name}.parquet", pd.concat(parts))


def oracle(folder: Path, plain: Score, gain: float, *, rows: int = 4000) -> None:
    """Scores of five datasets with states as fitted, and that much better when optimised."""
    numbers = np.arange(5)
    scores = {"plain": plain(rows, numbers), "oracle": plain(rows, numbers) + gain}
    parts = [
        pd.DataFrame({"dataset": numbers, "num_rows": rows, "reading": name, "roc_auc": score})
        for name, score in scores.items()
    ]
    table = pd.concat(parts).assign(accuracy=0.5, log_loss=1.0)
    write_table(folder / "oracle.parquet", table)


def oracle_real(folder: Path, gain: float) -> None:
    """Plain and optimised scores of two large tables, one fold each."""
    cells = [
        {"benchmark": "large", "table": name, "fold": 0, "num_rows": 4000, "reading": reading}
        | {"roc_auc": score + (gain if reading == "oracle" else 0.0), "accuracy": 0.5}
        for name, score in (("tabarena_SDSS17", 0.8), ("tabarena_other", 0.6))
        for reading in ("plain", "oracle")
    ]
    write_table(folder / "oracle_real.parquet", pd.DataFrame(cells).assign(log_loss=1.0))


def states(folder: Path, plain: Score, gain: float, *, rows: int = 4000) -> None:
    """Scores of five datasets after one pass, and that much better after a second."""
    numbers = np.arange(5)
    parts = [
        pd.DataFrame(
            {"dataset": numbers, "num_rows": rows, "reading": name, "passes": passes}
        ).assign(roc_auc=plain(rows, numbers) + more, accuracy=0.5, log_loss=1.0, seconds=passes)
        for name, passes, more in (("once", 1, 0.0), ("second_pass", 2, gain))
    ]
    write_table(folder / "states.parquet", pd.concat(parts))


def decay(folder: Path, score: Score, constants=(32, 128)) -> None:
    """Scores with a decay at evaluation alone."""
    lengths(folder, score, name="decay_at_evaluation")
    path = folder / "decay_at_evaluation.parquet"
    table = pd.read_parquet(path)
    write_table(path, pd.concat([table.assign(constant=c) for c in constants]))


def looks(folder: Path, cosine: Mapping[int, float], rate: Mapping[int, float]) -> None:
    """Cosines and write rates by layer, the same at every length; two heads, three tasks."""
    cells = [
        {"quantity": quantity, "layer": layer, "head": head, "num_rows": rows, "task": task}
        | {"value": value + 0.001 * task}
        for quantity, values in (("cosine_drift", cosine), ("write_rate", rate))
        for layer, value in values.items()
        for head in ((1, 2) if quantity == "cosine_drift" else (0,))
        for rows in ROWS
        for task in (1, 2, 3)
    ]
    left = [
        {"quantity": "log10_contribution", "layer": layer, "head": 0, "num_rows": rows, "task": 1}
        | {"value": -rows / 100}
        for layer in rate
        for rows in ROWS
    ]
    norms = [cell | {"quantity": "frobenius"} for cell in cells if cell["head"]]
    write_table(folder / "looks.parquet", pd.DataFrame(cells + norms + left))


def real(folder: Path, scores: Mapping[str, list[float]]) -> None:
    """Scores of tables by benchmark, two folds each."""
    cells = [
        {"benchmark": benchmark, "table": f"t{i}", "fold": fold, "roc_auc": score + 0.02 * fold}
        | {"num_rows": 400 if i % 2 else 800}
        | {"accuracy": score - 0.1, "log_loss": 1.0}
        for benchmark, values in scores.items()
        for i, score in enumerate(values)
        for fold in (0, 1)
    ]
    write_table(folder / "real.parquet", pd.DataFrame(cells))


def cost(
    folder: Path, exponent: float, state: float, lengths: Sequence[int] = (1000, 2000, 4000, 8000)
) -> None:
    """Times and bytes that grow with powers of the rows."""
    rows = np.array(lengths)
    columns = {"num_rows": rows, "fit_seconds": 1e-6 * rows**exponent, "predict_seconds": 0.01}
    frame = pd.DataFrame({**columns, "state_bytes": (1000 * rows**state).astype(int)})
    write_table(folder / "cost.parquet", frame)


def flat(level: float, *, noise: float = 0.01, seed: int = 0) -> Score:
    """The same at every length but for noise of a dataset and of a length."""

    def score(rows: int, numbers: np.ndarray) -> np.ndarray:
        own = np.random.default_rng([seed, rows]).normal(0, noise, len(numbers))
        return level + 0.05 * np.sin(numbers) + own

    return score


def falling(level: float, slope: float, **noise) -> Score:
    """Constant up to four times the trained rows, then lower by `slope` each time they double."""
    score = flat(level, **noise)
    return lambda rows, n: score(rows, n) - slope * max(0.0, float(np.log2(rows / 512)))

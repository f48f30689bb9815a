"""Time, memory and saved size beside the architectures of TabICL and TabPFN, on one CPU core.

    pip install tabicl tabpfn
    python -m experiments.peers.run --rows 1000 10000 50000 --output runs/peers

Their weights are random, which changes no cost; so accuracy is not compared. Each trial is a
process of its own: one member of the ensemble, 20 columns, 5 classes, 100 queries. What takes
longer than `--limit-minutes` is a row that says so. Stopped anywhere, the same command goes on,
and tries again what has failed.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from experiments.peers.trial import MODELS
from tabicl_linear import pages
from tabicl_linear.files import written_whole

NUMBERS = ["fit_seconds", "predict_seconds", "added_megabytes", "saved_megabytes"]


def trial(model: str, rows: int, minutes: float) -> dict[str, object]:
    """One row of the table; a failure has its reason in `error`."""
    command = [sys.executable, "-m", "experiments.peers.trial", model, str(rows)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    named: dict[str, object] = {"model": model, "rows": rows}
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=minutes * 60
        )
    except subprocess.TimeoutExpired:
        return {**named, "error": f"more than {minutes:g} minutes"}
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()
        return {**named, "error": lines[-1] if lines else f"ended by signal {-ended.returncode}"}
    return {**named, **json.loads(ended.stdout.splitlines()[-1]), "error": ""}


def markdown(table: pd.DataFrame) -> str:
    """A row for each model and number of rows."""
    times = ["fit (CPU s)", "predict 100 rows (CPU s)"]
    rows = []
    for row in table.to_dict("records"):
        numbers = [row["error"] or f"{row[name]:,.2f}" for name in NUMBERS]
        rows.append([row["model"], f"{row['rows']:,}", *numbers])
    return pages.markdown(["model", "rows", *times, "memory (MB)", "saved (MB)"], rows)


def main() -> int:
    """Run all trials that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 50_000])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--limit-minutes", type=float, default=10)
    parser.add_argument("--output", type=Path, default=Path("runs/peers"))
    arguments = parser.parse_args()
    path: Path = arguments.output / "trials.json"
    arguments.output.mkdir(parents=True, exist_ok=True)
    trials: list[dict[str, object]] = json.loads(path.read_text()) if path.exists() else []
    trials = [row for row in trials if not row["error"]]
    present = {(row["model"], row["rows"]) for row in trials}
    pairs = [(model, rows) for rows in sorted(arguments.rows) for model in arguments.models]
    for model, rows in tqdm([pair for pair in pairs if pair not in present], unit="trial"):
        trials.append(trial(model, rows, arguments.limit_minutes))
        with written_whole(path) as partial:
            partial.write_text(json.dumps(trials, indent=1) + "\n")
    table = pd.DataFrame([row for row in trials if (row["model"], row["rows"]) in pairs])
    text = markdown(table.sort_values(["rows", "model"], kind="stable"))
    (arguments.output / "peers.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

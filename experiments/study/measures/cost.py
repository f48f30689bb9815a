"""Seconds to fit and to predict, and bytes of the state, by rows (appendix F)."""

import statistics
import time
from pathlib import Path

import pandas as pd
import torch

from experiments.study.measures.lengths import columns_of
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear.kernels.state import num_bytes

NUM_QUERIES = 100
SEED = 0


@torch.no_grad()
def measure(checkpoint: Path, scale: Scale, device: str) -> pd.DataFrame:
    """Columns num_rows, fit_seconds, predict_seconds (100 queries; medians), state_bytes."""
    model, about = load_model(checkpoint).to(device), scale.cost
    generator = torch.Generator().manual_seed(SEED)
    columns, classes = columns_of(scale.lengths, model), scale.lengths["classes"]
    queries = torch.randn(1, NUM_QUERIES, columns, generator=generator).to(device)
    rows = []
    for length in about["rows"]:
        x = torch.randn(1, length, columns, generator=generator).to(device)
        y = torch.randint(classes, (1, length), generator=generator).to(device)
        seconds: dict[str, list[float]] = {"fit_seconds": [], "predict_seconds": []}
        for _ in range(about["repeats"]):
            start = time.perf_counter()
            state = model.fit(x, y)
            middle = _now(device)
            model.predict(state, queries)
            seconds["fit_seconds"].append(middle - start)
            seconds["predict_seconds"].append(_now(device) - middle)
        medians = {name: statistics.median(values) for name, values in seconds.items()}
        rows.append({"num_rows": length, **medians, "state_bytes": num_bytes(state)})
    return pd.DataFrame(rows)


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()

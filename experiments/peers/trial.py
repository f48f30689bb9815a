"""One trial in a process of its own: fit, predict and save one classifier; prints a JSON object."""

import argparse
import json
import os
import pickle
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.peers.weights import ARCHITECTURES
from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.shipped import WEIGHTS

NUM_COLUMNS, NUM_CLASSES, NUM_QUERIES = 20, 5, 100


def _tabicl(path: Path, kv_cache: bool) -> Any:
    from tabicl import TabICLClassifier

    return TabICLClassifier(
        n_estimators=1,
        model_path=path,
        allow_auto_download=False,
        device="cpu",
        kv_cache=kv_cache,
        n_jobs=1,
    )


def _tabpfn(path: Path, kv_cache: bool) -> Any:
    from tabpfn import TabPFNClassifier

    return TabPFNClassifier(
        n_estimators=1,
        model_path=path,
        device="cpu",
        ignore_pretraining_limits=True,
        fit_mode="fit_with_cache" if kv_cache else "fit_preprocessors",
    )


MAKERS: dict[str, Callable[[Path, bool], Any]] = {"TabICL v2": _tabicl, "TabPFN v2.5": _tabpfn}
NETWORK = "default without trees"
MODELS = [
    *WEIGHTS,
    NETWORK,
    "closed form",
    *ARCHITECTURES,
    *[f"{name}, keys and values kept" for name in ARCHITECTURES],
]
"""What can be timed: the default, which chooses trees, and other weights that ship; the closed form
alone; and the architectures of others."""


def classifier(name: str, folder: Path) -> Any:
    """An unfitted classifier of one member; architectures of others get random weights."""
    if name in WEIGHTS:
        return TabICLLinearClassifier(name, n_estimators=1)
    if name == NETWORK:
        return TabICLLinearClassifier(trees=False, n_estimators=1)
    if name == "closed form":
        return RandomFeatureRidge(trees=False, n_estimators=1)
    architecture, _, with_cache = name.partition(",")
    path = folder / "random.ckpt"
    ARCHITECTURES[architecture](path)
    return MAKERS[architecture](path, bool(with_cache))


def saved_bytes(fitted: Any, folder: Path) -> int:
    """Size of what has to be kept for prediction: our state file, or a pickle without weights."""
    path = folder / "saved"
    if isinstance(fitted, TabICLLinearClassifier | RandomFeatureRidge):
        fitted.save(path)
    elif type(fitted).__name__ == "TabICLClassifier":
        fitted.save(path, save_model_weights=False)
    else:
        weights = sum(
            p.numel() * p.element_size() for model in fitted.models_ for p in model.parameters()
        )
        return len(pickle.dumps(fitted)) - weights
    return path.stat().st_size


def measure(name: str, rows: int) -> dict[str, float | int | str]:
    """Seconds of CPU time, peak memory and saved size for a table of random numbers."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows + NUM_QUERIES, NUM_COLUMNS)).astype(np.float32)
    y = rng.integers(NUM_CLASSES, size=rows)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = classifier(name, folder)
        model.fit(x[:100], y[:100])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.process_time()
        model.fit(x[:rows], y)
        fitted = time.process_time()
        model.predict_proba(x[rows:])
        done = time.process_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        size = saved_bytes(model, folder)
    return {
        "model": name,
        "rows": rows,
        "fit_seconds": fitted - begun,
        "predict_seconds": done - fitted,
        "added_megabytes": (peak - before) / 1024,
        "saved_megabytes": size / 1e6,
    }


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("rows", type=int)
    arguments = parser.parse_args()
    os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
    print(json.dumps(measure(arguments.model, arguments.rows)))


if __name__ == "__main__":
    main()

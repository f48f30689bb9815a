"""Scores of states as fitted and optimised on their context (section 4.3)."""

from pathlib import Path

import pandas as pd

from experiments.study.measures.lengths import SCORES, options
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear.analysis.oracle import OracleOptions, check_model
from tabicl_linear.errors import ConfigError
from tabicl_linear.lengths.oracle import SyntheticTasks, compare


def measure(checkpoint: Path, scale: Scale, device: str) -> pd.DataFrame:
    """Columns dataset, num_rows, reading (plain or oracle), roc_auc, accuracy, log_loss.

    The datasets are those of `lengths`, cut to so many rows, so that scores of the oracle can be
    paired with those of other arms. Empty for models whose state is no matrix.
    """
    model = load_model(checkpoint).to(device)
    try:
        check_model(model)
    except ConfigError:
        return pd.DataFrame(columns=[*SCORES[:2], "reading", *SCORES[2:]])
    about = scale.oracle
    tasks = SyntheticTasks(options(scale.lengths, model), about["datasets"])
    how = OracleOptions(max_epochs=about["epochs"])
    parts = []
    for index in range(len(tasks)):
        task, rows = tasks[index], about["rows"]
        cut = task._replace(x=task.x[:, :rows], y=task.y[:, :rows])
        parts.append(compare({"model": model}, [cut], how, 0).assign(dataset=index))
    wide = pd.concat(parts)
    readings = [
        wide[["dataset", "num_rows"]].assign(
            reading=reading, **{name: wide[f"{prefix}{name}"] for name in SCORES[2:]}
        )
        for reading, prefix in (("plain", ""), ("oracle", "oracle_"))
    ]
    return pd.concat(readings, ignore_index=True)

"""Scores of states as fitted and optimised on their context (section 4.3)."""

from pathlib import Path

import pandas as pd

from experiments.study.measures.lengths import SCORES, options
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear.analysis.state_optimisation import OracleOptions
from tabicl_linear.lengths.oracle_tasks import SyntheticTasks, compare
from tabicl_linear.model import InContextModel

KEYS = ["dataset", "num_rows"]


def measure(checkpoint: Path, scale: Scale, device: str) -> pd.DataFrame:
    """Columns dataset, num_rows, reading (plain or oracle), roc_auc, accuracy, log_loss, seconds.

    The datasets are those of `lengths`, cut to so many rows, so that scores of the oracle can be
    paired with those of other arms. Empty for models whose state is no matrix.
    """
    model = load_model(checkpoint).to(device)
    if not has_matrices(model):
        return pd.DataFrame(columns=[*KEYS, "reading", *SCORES[2:]])
    about = scale.oracle
    tasks = SyntheticTasks(options(scale.lengths, model), about["datasets"])
    how = OracleOptions(max_epochs=about["epochs"])
    parts = []
    for index in range(len(tasks)):
        task, rows = tasks[index], about["rows"]
        cut = task._replace(x=task.x[:, :rows], y=task.y[:, :rows])
        parts.append(compare({"model": model}, [cut], how, 0).assign(dataset=index))
    return long_form(pd.concat(parts), KEYS)


def has_matrices(model: InContextModel) -> bool:
    """Whether the states of all layers can be optimised, or averaged."""
    return all(block.mixer.rule.has_matrix_state for block in model.backbone.layers())


def long_form(wide: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """What `compare` gives as a row for each reading; seconds of the oracle include the fit."""
    seconds = {"plain": wide["fit_seconds"], "oracle": wide["fit_seconds"] + wide["oracle_seconds"]}
    readings = [
        wide[keys].assign(
            reading=reading,
            **{name: wide[f"{prefix}{name}"] for name in SCORES[2:]},
            seconds=seconds[reading],
        )
        for reading, prefix in (("plain", ""), ("oracle", "oracle_"))
    ]
    return pd.concat(readings, ignore_index=True)

"""Scores of models trained without a decay of write rates and read with one (appendix D.7)."""

from pathlib import Path

import pandas as pd

from experiments.study.measures.lengths import SCORES, options
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear.lengths.run import RunOptions, read_dataset
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel

OPTION = "model.mixer.init_args.decay_constant"


def measure(checkpoint: Path, scale: Scale, device: str) -> pd.DataFrame:
    """Columns dataset, num_rows, constant (in tokens), roc_auc, accuracy, log_loss.

    Empty for models that have no write rates, or were trained with a decay.
    """
    about = scale.decay_at_evaluation
    trained = load_model(checkpoint)
    if not constant_rates(trained):
        return pd.DataFrame(columns=[*SCORES[:2], "constant", *SCORES[2:]])
    run = RunOptions(options(scale.lengths, trained))
    parts = []
    for constant in about["constants"]:
        models = {"model": load_model(checkpoint, [f"{OPTION}={constant}"]).to(device)}
        for index in range(about["datasets"]):
            scores = read_dataset(models, run, index)[SCORES]
            parts.append(scores.assign(constant=constant))
    return pd.concat(parts, ignore_index=True)


def constant_rates(model: InContextModel) -> bool:
    """Whether a model is a DeltaNet whose write rates were trained without a decay."""
    mixer = model.backbone.layers()[0].mixer
    return isinstance(mixer, DeltaNet) and mixer.write_rate.decay_constant is None

"""Numbers that a change of structure must not change. Made anew, after a change that means to, by

OMP_NUM_THREADS=1 PYTHONPATH=.:tests .venv/bin/python -m golden.make
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from contract.variants import make, served, task

from tabicl_linear import build_task
from tabicl_linear.__main__ import main

FOLDER = Path(__file__).parent
CONFIGS = FOLDER.parents[1] / "configs"
LOGITS = FOLDER / "logits.npz"
TRAINING = FOLDER / "training.json"
SMALL_RUN = ("smoke.yaml", "prior/gaussian_uniform.yaml")
STEPS = 3
OVERRIDES = {"mamba2": ["model.mixer.init_args.num_layers=18"]}
"""Stored when a small Mamba-2 started as one of 18 layers."""
ROOTS = sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem not in ("smoke", "quick"))


def cases() -> list[tuple[str, str, bool]]:
    """(mixer, readout, two axes); options of mixers on one axis alone."""
    plain = [(*pair, False) for pair in served()]
    return plain + [(*pair, True) for pair in served() if "+" not in pair[0]]


def key(mixer: str, readout: str, two_axis: bool) -> str:
    """The name of a case in the file."""
    return f"{mixer} {readout}{' two_axis' if two_axis else ''}"


def logits(mixer: str, readout: str, two_axis: bool) -> torch.Tensor:
    """float64 logits of the queries of a task, from parameters that are seeded noise."""
    model, batch = make(mixer, readout, axis="two_axis" if two_axis else "row"), task()
    c = batch.num_context
    with torch.no_grad():
        state = model.fit(batch.x[:, :c], batch.y[:, :c], categorical=batch.categorical)
        return model.predict(state, batch.x[:, c:])


def initial(config: str) -> dict[str, list]:
    """Names, shapes and sums of the initial parameters of a config, made small."""
    paths = [CONFIGS / f"{config}.yaml", *(CONFIGS / name for name in SMALL_RUN)]
    task = build_task(*paths, overrides=OVERRIDES.get(config, []))
    return {
        name: [*value.shape, value.double().abs().sum().item()]
        for name, value in task.state_dict().items()
    }


def losses(config: str) -> list[float]:
    """Losses of the first steps of a config in float64, made small."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["fit", "--config", str(CONFIGS / f"{config}.yaml")]
        for name in SMALL_RUN:
            command += ["--config", str(CONFIGS / name)]
        command += [f"--{option}" for option in OVERRIDES.get(config, [])]
        command += ["--trainer.default_root_dir", folder, "--trainer.max_steps", str(STEPS)]
        command += ["--trainer.precision", "64-true", "--trainer.enable_progress_bar", "false"]
        command += ["--trainer.accumulate_grad_batches", "1", "--trainer.accelerator", "cpu"]
        command += ["--trainer.enable_model_summary", "false", "--trainer.limit_val_batches", "0"]
        assert main(command) == 0
        lines = (Path(folder) / "version_0" / "metrics.csv").read_text().splitlines()
    column = lines[0].split(",").index("train/loss")
    return [float(line.split(",")[column]) for line in lines[1:]]


if __name__ == "__main__":
    np.savez_compressed(LOGITS, **{key(*case): logits(*case).numpy() for case in cases()})
    runs = {config: {"initial": initial(config), "losses": losses(config)} for config in ROOTS}
    TRAINING.write_text(json.dumps(runs, indent=1) + "\n")

"""Training in 16 bits through the command line: bf16-mixed, on every backend of the CPU."""

from pathlib import Path

import pytest
from kernels.candidates import fast_dtypes

from tabicl_linear import build_task
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.kernels import additive

GLA = Path(__file__).parents[2] / "configs" / "gla.yaml"
STEP = ["--trainer.max_steps=2", "--trainer.val_check_interval=4", "--data.val_batches=1"]


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_bf16_mixed_trains(fit, backend, capsys, tmp_path):
    options = ["--trainer.precision=bf16-mixed", f"--model.backend={backend}"]
    assert fit(*STEP, *options) == 0
    losses = (tmp_path / "runs" / "version_0" / "metrics.csv").read_text().splitlines()
    assert len(losses) > 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("cpu, Delta")]
    assert not said or backend == "auto"


@pytest.mark.parametrize(
    ("precision", "processor", "said"),
    [
        ("bf16-mixed", "AMD EPYC (avx2)", True),
        ("bf16-mixed", "Xeon (avx2, avx512f, avx512_bf16)", False),
        ("bf16-mixed", "arm64", False),
        ("32-true", "AMD EPYC (avx2)", False),
    ],
)
def test_a_processor_that_emulates_bfloat16_is_named(precision, processor, said, fit, monkeypatch):
    monkeypatch.setattr("tabicl_linear.machine.processor", lambda: processor)
    monkeypatch.setattr("tabicl_linear.cli.training.processor", lambda: processor)
    lines = list[str]()
    monkeypatch.setattr("tabicl_linear.cli.training.rank_zero_info", lines.append)
    assert fit(*STEP, f"--trainer.precision={precision}", "--model.backend=torch") == 0
    line = f"several times as long as 32-true here, since {processor} has no"
    assert any(line in each for each in lines) is said


def test_a_task_is_placed_for_the_precision_of_its_trainer():
    """Kernels are tried in the dtype that training will use, and in no other."""
    import lightning
    import torch

    task = build_task(GLA, overrides=["model.architecture.depth=1"])
    built = unavailable() is None
    for precision, dtype in (("bf16-mixed", torch.bfloat16), ("32-true", torch.float32)):
        task.trainer = lightning.Trainer(
            precision=precision, logger=False, enable_checkpointing=False, accelerator="cpu"
        )
        task.setup("fit")
        assert fast_dtypes(task.model.choice(), additive.TORCH) == ({dtype} if built else set())

"""Runs with Muon go on where they stopped."""

import pytest
from resumed_runs import KEEP, assert_same

MUON = ("--model.optimizer", "tabicl_linear.training.MuonAdamW")
MUON += ("--model.optimizer.init_args.lr", "1e-3")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_run_resumes_bit_identically(fit, load, tmp_path, precision):
    """Accumulated over two batches, clipped, under a schedule."""
    options = (*KEEP, *MUON, "--trainer.precision", precision)
    assert fit(*options, "--trainer.gradient_clip_val", 0.1) == 0
    whole = tmp_path / "runs" / "version_0"
    assert fit("--ckpt_path", whole / "step_0000003.ckpt", root="from_3", base=[]) == 0
    final, resumed = (load(p / "last.ckpt") for p in (whole, tmp_path / "from_3" / "version_0"))
    assert_same(final, resumed)
    groups = final["optimizer_states"][0]["param_groups"]
    assert groups[0]["lr"] == groups[1]["lr"] < 1e-3
    assert set(groups[0]["parts"]) == {1, 2, 3}


def test_a_resumed_run_takes_new_options_but_no_other_division(fit, load, tmp_path, capfd):
    assert fit(*KEEP, *MUON) == 0
    path = tmp_path / "runs" / "version_0" / "step_0000003.ckpt"
    given = ("--ckpt_path", path, "--model.optimizer.init_args.momentum", 0.5)
    assert fit(*given, root="new", base=[]) == 0
    stored = load(tmp_path / "new" / "version_0" / "last.ckpt")
    assert stored["optimizer_states"][0]["param_groups"][0]["momentum"] == 0.5
    capfd.readouterr()
    given = ("--ckpt_path", path, "--model.optimizer.init_args.matrices", '{"*qkv.weight": 3}')
    assert fit(*given, root="other", base=[]) == 2
    lines = [x for x in capfd.readouterr().err.splitlines() if x.startswith("tabicl-linear")]
    assert len(lines) == 1
    assert "other parameters in its groups" in lines[0]

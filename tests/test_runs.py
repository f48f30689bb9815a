"""Every trained model that the paper names: builds, has its published size, takes a step."""

import pytest
import torch
from command_line import CONFIGS

from tabicl_linear import build_task
from tabicl_linear.__main__ import main
from tabicl_linear.cli.models import state_bytes
from tabicl_linear.config import ConfigCLI
from tabicl_linear.runs import RUNS
from tabicl_linear.training.noise import without_noise


def _paths(run):
    return [CONFIGS / f"{overlay}.yaml" for overlay in run.overlays]


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if len(run.overlays) > 1])
def test_a_run_builds_and_takes_a_step_with_the_smoke_overlay(name):
    """Those of one file take three in golden/test_golden.py."""
    run = RUNS[name]
    smoke = [*_paths(run), CONFIGS / "prior/gaussian_uniform.yaml", CONFIGS / "smoke.yaml"]
    with without_noise():
        built = ConfigCLI([f"--config={path}" for path in smoke])
    task, batch = built.model, built.datamodule.stream("validate").batch(0)
    before = [parameter.detach().clone() for parameter in task.parameters()]
    optimizer = task.optimizer(task.parameters())
    loss = torch.nn.functional.cross_entropy(
        task.model(batch).flatten(0, 1), batch.y[:, batch.num_context :].flatten()
    )
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert all(parameter.isfinite().all() for parameter in task.parameters())
    moved = [not torch.equal(a, b) for a, b in zip(before, task.parameters(), strict=True)]
    assert sum(moved) > len(moved) / 2


def test_a_model_with_a_file_of_its_own_has_its_name():
    files = {path.stem for path in CONFIGS.glob("*.yaml")} - {"quick", "smoke"}
    assert {run.overlays for run in RUNS.values() if len(run.overlays) == 1} == {
        (name,) for name in files
    }
    assert all(RUNS[name].overlays == (name,) for name in files)
    assert all(name.startswith(run.overlays[0]) for name, run in RUNS.items())


def test_models_prints_a_row_for_every_run_with_its_published_number_of_parameters(capsys):
    assert main(["models", "--configs", str(CONFIGS)]) == 0
    lines = capsys.readouterr().out.splitlines()
    document = (CONFIGS.parent / "docs" / "models.md").read_text()
    assert "\n".join(lines) in document
    rows = {line.split(" | ")[0].strip("| "): line for line in lines[2:]}
    assert set(rows) == set(RUNS)
    for name, run in RUNS.items():
        published, parameters = rows[name].split(" | ")[4:6]
        assert published == (f"{run.parameters:,}" if run.parameters else ""), name
        assert parameters == published or not published, name
    assert "| 12,489,162 | 12,489,162 | 1,228,800 |" in rows["deltanet"]
    assert "| DeltaNet | Int-MT | Causal |" in rows["deltanet_int_mt"]
    assert "38,400 per token" in rows["softmax"]
    assert "614,400" in rows["gla"]
    assert "786,432" in rows["gated_deltanet"]
    assert "per cell of a row" in rows["deltanet_two_axis"]
    mitigated = {name: row.split(" | ")[5] for name, row in rows.items()}
    assert mitigated["deltanet_weaving"] == "12,796,362"
    assert mitigated["gla_mimetic"] == "12,571,722"
    assert mitigated["linear_causal_frobenius"] == "12,473,850"


@pytest.mark.parametrize(
    ("name", "form", "expected"),
    [
        ("deltanet", "leave_one_out", f"{1_228_800 + 168_680:,}"),
        ("deltanet", "earlier_rows", f"{1_228_800 + 4_774_704:,}"),
        ("softmax", "leave_one_out", "38,400 per token + 168,680"),
        ("deltanet_two_axis", "earlier_rows", "1,228,800 per cell of a row + 4,774,704"),
    ],
)
def test_state_bytes_count_what_ridge_inputs_keep(name, form, expected):
    with torch.device("meta"):
        ridge = [f"model.architecture.ridge_inputs.form={form}"]
        model = build_task(*_paths(RUNS[name]), overrides=ridge).model
    assert state_bytes(model) == expected


def test_models_needs_the_configs(tmp_path, capsys):
    assert main(["models", "--configs", str(tmp_path)]) == 2
    assert "deltanet.yaml" in capsys.readouterr().err

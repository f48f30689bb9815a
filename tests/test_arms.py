"""Arms: equal CPU time, a folder for each, and a table of what came of them."""

import pandas as pd
import pytest
import small_tables
from tiny_legs import fork_trainings, overlay

from experiments.arms import run as arms
from experiments.development.tables import VARIABLE
from experiments.pretrain_default import legs
from experiments.pretrain_default.legs import Leg

__all__ = ["fork_trainings", "overlay"]


@pytest.fixture
def legs_run(monkeypatch):
    """Instead of training: each leg writes what it was asked for, and a log with made-up scores."""
    calls = []

    def run_leg(arguments, options):
        calls.append((arguments, options))
        arguments.output.mkdir(parents=True)
        loss = 0.5 + 0.1 * len(arguments.config)
        leg = Leg("a processor", 1.0, 0.1, 0.02, 100, 15, 900, 9000, loss, 0.8, 0.9)
        legs.append(leg, arguments.output)
        rows = [
            {"protocol": "small", "table": t, "split": 0}
            | {"roc_auc": loss, "accuracy": loss, "log_loss": loss}
            | {"fit_seconds": 1.0, "predict_seconds": 1.0}
            for t in ("one", "two")
        ]
        pd.DataFrame(rows).to_csv(arguments.output / arms.DEVELOPMENT, index=False)
        return 0

    monkeypatch.setattr(arms, "run_leg", run_leg)
    monkeypatch.setattr(arms.torch, "set_num_threads", lambda threads: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return calls


def test_every_arm_gets_the_same_time_and_is_trained_once(legs_run, overlay, tmp_path, capsys):
    options = ["--arm", "base=", "--arm", f"more={overlay},{overlay}", "--cpu-minutes", "2"]
    options += ["--seed", "3", "--output", str(tmp_path / "arms")]
    assert arms.main(options) == 0
    (base, base_options), (more, _) = legs_run
    assert base.cpu_minutes == more.cpu_minutes == 2
    assert base_options == ["--seed_everything", "3"]
    assert (base.config, more.config) == ([], [overlay, overlay])
    assert base.output != more.output
    printed = capsys.readouterr().out
    assert "| base | 3 | 2.0000 | 100 | 900 | 0.1200 | 0.5000 |" in printed
    assert "Minus base" in printed
    assert "+0.2000 [+0.2000, +0.2000] 2:0" in printed
    assert arms.main(options) == 0
    assert len(legs_run) == 2
    assert arms.main([*options, "--seed", "4", "--only", "more"]) == 0
    assert len(legs_run) == 3
    rows = pd.read_csv(tmp_path / "arms" / "arms.csv")
    assert list(zip(rows["arm"], rows["seed"], strict=True)) == [
        ("base", 3),
        ("more", 3),
        ("more", 4),
    ]


@pytest.mark.parametrize(
    "options",
    [
        ["--arm", "base", "--cpu-minutes", "1"],
        ["--arm", "base=nowhere.yaml", "--cpu-minutes", "1"],
        ["--arm", "base=", "--minutes", "1"],
        ["--arm", "base=", "--arm", "base=", "--cpu-minutes", "1"],
        ["--arm", "base=", "--cpu-minutes", "1", "--only", "other"],
        ["--arm", "base=", "--cpu-minutes", "-1"],
    ],
)
def test_bad_input_trains_nothing(legs_run, options, tmp_path):
    with pytest.raises(SystemExit) as caught:
        arms.main([*options, "--output", str(tmp_path / "arms")])
    assert caught.value.code == 2
    assert not legs_run


@pytest.mark.slow
def test_a_real_arm_of_seconds(overlay, tmp_path, monkeypatch, fork_trainings):
    fork_trainings()
    monkeypatch.setenv(VARIABLE, str(small_tables.write(tmp_path / "tables")))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = ["--arm", f"tiny={overlay}", "--cpu-minutes", "0.03", "--tasks", "1"]
    options += ["--lengths", "64", "--output", str(tmp_path / "arms")]
    assert arms.main(options) == 0
    (row,) = pd.read_csv(tmp_path / "arms" / "arms.csv").to_dict("records")
    assert row["arm"] == "tiny"
    assert 0 < row["loss"] < 3
    assert 0 <= row["development_roc_auc"] <= 1
    # CPU time is asked for and spent. So are the starts of processes, which a slow machine takes
    # several times as long for; without a limit it would train for ever.
    assert 0.015 < 60 * row["core_hours"] < 1

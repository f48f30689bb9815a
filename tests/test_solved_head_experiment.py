"""experiments.solved_head: training that goes on as if never stopped, and arms compared."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_blobs

from experiments.solved_head import development, gate, run
from experiments.solved_head.learners import LearnedContext, trained
from experiments.solved_head.tasks import CLASSES, in_random_slots
from tabicl_linear.checkpoint_file import load_checkpoint
from tabicl_linear.embedding.statistics import context_statistics
from tabicl_linear.priors.rows import LogUniformRows

TINY = ["--steps", "4", "--tokens", "1024", "--tasks", "2", "--dim", "8", "--depth", "1"]
TINY += ["--validate-every", "3", "--validation-batches", "3"]


def train(folder, minutes="0"):
    run.main([*TINY, "--checkpoint-minutes", minutes, "--output", str(folder)])
    return load_checkpoint(folder / run.CHECKPOINT, "train")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(folder, "60")
    return folder


def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path, whole, monkeypatch):
    kept, save = [], run.Run.save

    def stopping(self):
        save(self)
        kept.append(self.step)
        if len(kept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(run.Run, "save", stopping)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path)
    assert kept == [1, 2]
    monkeypatch.setattr(run.Run, "save", save)
    resumed, at_once = train(tmp_path), load_checkpoint(whole / run.CHECKPOINT, "train")
    for part in ("network", "average"):
        for name, value in at_once[part].items():
            assert torch.equal(resumed[part][name], value), name
    assert resumed["history"] == at_once["history"]
    assert any("trees_with_learned" in row for row in resumed["history"])


def test_classes_are_renamed_and_stay_apart():
    y = torch.arange(CLASSES).expand(3, -1)
    renamed = in_random_slots(y, 7)
    assert torch.equal(renamed.sort(1).values, y)
    assert not torch.equal(renamed[0], renamed[1])
    assert torch.equal(renamed, in_random_slots(y, 7))


def test_rows_have_the_same_features_in_pieces(whole, monkeypatch):
    x, y = make_blobs(60, 4, random_state=0)
    x, y = torch.tensor(x, dtype=torch.float32)[None], torch.tensor(y)[None]
    codes = torch.zeros(1, x.shape[2], dtype=torch.bool)
    statistics = context_statistics(x, y, codes, num_features=None)
    context = LearnedContext.of(trained(whole / run.CHECKPOINT), x, y, statistics, int(y.max()) + 1)
    with torch.no_grad():
        at_once = context.features(x)
        monkeypatch.setattr("experiments.solved_head.learners.ROWS_AT_ONCE", 7)
        torch.testing.assert_close(context.features(x), at_once)
    assert at_once.std(0).min() > 0


def test_the_part_of_an_arm_is_that_of_least_log_loss_or_less():
    labels = np.array([0, 1] * 40)
    right = np.where(labels[:, None] == np.arange(2), 2.0, 0.0)
    nothing = np.zeros_like(right)
    assert development.part_of((nothing, right), labels, 0.0) == 1.0
    assert development.part_of((right, nothing), labels, 1.0) == 0.0
    noise = np.random.default_rng(0).normal(size=right.shape)
    assert development.part_of((right + noise, right - noise), labels, 9.0) == 0.0


def test_a_gate_opens_where_rows_left_out_gain():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=80)
    right = np.eye(3)[labels] * 2 + rng.normal(size=(80, 3))
    flat = np.zeros((80, 3))
    gains = gate.described(flat, right, labels)
    losses = gate.described(right, flat, labels)
    assert gains[0] == pytest.approx(-losses[0])
    assert gains[2] == pytest.approx(np.log(3))
    assert gains[3:].tolist() == pytest.approx([np.log(80), 3, 1 / 3])
    seen = rng.normal(size=(60, 6)) + (gains + losses) / 2
    fitted = gate.Gate.fitted(seen, 0.3 * seen[:, 0])
    assert fitted.gain(gains) > 0 > fitted.gain(losses)


def test_gates_are_fitted_to_synthetic_tasks_and_kept(whole, monkeypatch, capsys):
    monkeypatch.setattr(gate, "ROWS", LogUniformRows(128, 140))
    assert gate.main(["--run", str(whole), "--tasks", "3"]) == 0
    assert "trees+learned: always" in capsys.readouterr().out
    kept = gate.read_gates(whole)
    assert list(kept) == ["closed+learned", "trees+learned"]
    assert np.isfinite(kept["trees+learned"].weights).all()


def test_tables_are_measured_once_and_compared(tmp_path, whole, capsys):
    x, y = make_blobs(300, 4, cluster_std=5.0, random_state=0)
    folder = tmp_path / "tables"
    folder.mkdir()
    frame = pd.DataFrame(x, columns=[f"c{i}" for i in range(x.shape[1])]).assign(t=y.astype(str))
    for name in ("small", "large"):
        (folder / name).mkdir()
        frame.to_parquet(folder / name / "a.parquet")
        index = pd.DataFrame({"name": [name], "file": ["a.parquet"], "target_column": ["t"]})
        index.to_csv(folder / name / "index.csv", index=False)
    output = tmp_path / "out"
    command = ["--run", str(whole), "--output", str(output), "--splits", "1"]
    command += ["--tables", str(folder / "small"), "--large", str(folder / "large")]
    assert development.main(command) == 0
    first = capsys.readouterr().out
    assert {"trees+learned", "closed+learned"} <= set(
        json.loads((output / "small_small_0_learned.json").read_text())
    )
    assert "| trees+learned |" in first
    assert "| trees & trees+learned (gate) |" in first
    assert development.main(command) == 0
    assert capsys.readouterr().out.strip() == first[first.index("|  |") :].strip()

"""A run goes from one machine to another through the repository, as parts that are replaced."""

import pytest
import torch
from command_line import load

from experiments.pretrain_default import travel
from experiments.pretrain_default.training import newest_checkpoint
from tabicl_linear.errors import CheckpointError

__all__ = ["load"]


@pytest.fixture
def run(tmp_path):
    torch.manual_seed(0)
    weight = torch.randn(50, 40)
    state = {"step": torch.tensor(7.0), "exp_avg": weight / 9, "exp_avg_sq": weight**2}
    content = {
        "state_dict": {"model.w": weight, "model.n": torch.arange(3)},
        "optimizer_states": [{"state": {0: state}, "param_groups": [{"params": [0]}]}],
        "global_step": 7,
    }
    path = tmp_path / "run" / "trunk" / "version_0" / "last.ckpt"
    path.parent.mkdir(parents=True)
    torch.save(content, path)
    (path.parent / "config.yaml").write_text("model: 1\n")
    (tmp_path / "run" / "legs.csv").write_text("a\n")
    return tmp_path / "run"


def test_it_is_packed_and_stays_as_it_then_is(run, tmp_path, load):
    first, second = tmp_path / "first", tmp_path / "second"
    size = travel.pack(run, first, part=4000, total=16_000)
    assert size <= 16_000
    assert size == sum(path.stat().st_size for path in first.glob("*.bin"))
    assert max(path.stat().st_size for path in first.glob("*.bin")) <= 4000
    there = tmp_path / "there"
    merged = travel.unpack(first, there)
    assert (there / "trunk" / "version_0" / "config.yaml").read_text() == "model: 1\n"
    assert (there / "legs.csv").read_text() == "a\n"
    content, original = load(merged), load(newest_checkpoint(run / "trunk"))
    assert content["global_step"] == 7
    torch.testing.assert_close(content["state_dict"], original["state_dict"], rtol=2e-5, atol=0)
    travel.pack(there, second)
    again = load(travel.unpack(second, tmp_path / "again"))
    torch.testing.assert_close(again["state_dict"], content["state_dict"], rtol=0, atol=0)
    state, twice = (c["optimizer_states"][0]["state"][0] for c in (content, again))
    torch.testing.assert_close(twice, state, rtol=1e-6, atol=0)


def test_parts_are_replaced_and_not_added(run, tmp_path, load):
    parts = tmp_path / "parts"
    travel.pack(run, parts, part=2000, exact=True)
    before = {path.name for path in parts.iterdir()}
    path = newest_checkpoint(run / "trunk")
    content = load(path)
    torch.save({**content, "global_step": 8}, path)
    size = travel.pack(run, parts)
    names = {path.name for path in parts.iterdir()}
    assert names & before == {"manifest.json"}
    assert sum(path.stat().st_size for path in parts.glob("*.bin")) == size
    assert load(travel.unpack(parts, tmp_path / "there"))["global_step"] == 8


def test_a_changed_or_missing_part_is_refused_and_nothing_written(run, tmp_path):
    parts, target = tmp_path / "parts", tmp_path / "target"
    travel.pack(run, parts, part=4000)
    piece = sorted(parts.glob("*.bin"))[1]
    content = piece.read_bytes()
    piece.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=f"{piece.name} has changed"):
        travel.unpack(parts, target)
    piece.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        travel.unpack(parts, target)
    assert not target.exists()


def test_it_overwrites_no_run_and_refuses_what_is_no_checkpoint(run, tmp_path):
    parts = tmp_path / "parts"
    travel.pack(run, parts)
    with pytest.raises(CheckpointError, match="exists"):
        travel.unpack(parts, run)
    with pytest.raises(CheckpointError, match="no training checkpoint"):
        travel.pack(tmp_path, tmp_path / "new")
    with pytest.raises(CheckpointError, match="more than 100; raise"):
        travel.pack(run, tmp_path / "new", total=100)
    with pytest.raises(CheckpointError, match="more than 100; leave --exact out"):
        travel.pack(run, tmp_path / "new", total=100, exact=True)
    assert not (tmp_path / "new").exists()

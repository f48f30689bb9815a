"""Damage is found out before anything is done with a checkpoint."""

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import fit, kept, load, tiny
from forked import forked, limit_files

from tabicl_linear.__main__ import main
from tabicl_linear.checkpoint import export, load_model
from tabicl_linear.checkpoint_file import load_checkpoint, save_checkpoint
from tabicl_linear.errors import CheckpointError

__all__ = ["fit", "forked", "kept", "load", "tiny"]
FLIPS = 150


def flipped(content, seed):
    """The content with one bit turned, anywhere."""
    rng, damaged = random.Random(seed), bytearray(content)
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def same(first, second):
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first, second)
    if isinstance(first, dict):
        matching = isinstance(second, dict) and first.keys() == second.keys()
        return matching and all(same(v, second[k]) for k, v in first.items())
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


def test_a_flipped_bit_in_a_checkpoint_is_refused_or_without_effect(kept, tmp_path):
    content, whole = kept.read_bytes(), load_checkpoint(kept, "")
    path, refused, silent = tmp_path / "flipped.ckpt", 0, 0
    for seed in range(FLIPS):
        path.write_bytes(flipped(content, seed))
        try:
            read = load_checkpoint(path, "try another")
        except CheckpointError:
            refused += 1
            silent += torch_loads(path)
        else:
            assert same(read, whole), seed
    assert refused > FLIPS / 2
    # Twin: without the checksums most of them load, with other content.
    assert silent > refused / 2


def test_a_file_that_is_marked_as_a_folder_is_refused(kept, tmp_path):
    content, path = bytearray(kept.read_bytes()), tmp_path / "marked.ckpt"
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"/data/3"))
    content[entry + 38] |= 0x10  # the lowest byte of the entry's attributes
    path.write_bytes(content)
    assert torch_loads(path)  # twin: PyTorch alone takes it
    with pytest.raises(CheckpointError, match="is damaged"):
        load_checkpoint(path, "try another")


def torch_loads(path):
    try:
        torch.load(path, weights_only=True, map_location="cpu")
    except Exception:
        return False
    return True


def test_a_flipped_bit_in_an_export_is_refused_or_without_effect(kept, tmp_path):
    path, damaged = tmp_path / "m.safetensors", tmp_path / "flipped.safetensors"
    export(kept, path)
    content, whole = path.read_bytes(), load_model(path)
    refused = 0
    for seed in range(FLIPS):
        damaged.write_bytes(flipped(content, seed))
        try:
            model = load_model(damaged)
        except CheckpointError:
            refused += 1
            continue
        assert same(dict(model.state_dict()), dict(whole.state_dict())), seed
        assert model.provenance == whole.provenance
    assert refused > 0.95 * FLIPS


@pytest.mark.parametrize("verb", ["fit", "validate"])
def test_the_command_line_refuses_damage_in_one_line(kept, tmp_path, capfd, verb):
    content = bytearray(kept.read_bytes())
    # In the middle of the largest record: a weight.
    content[len(content) // 2] ^= 1
    (tmp_path / "bad.ckpt").write_bytes(content)
    capfd.readouterr()
    assert main([verb, "--ckpt_path", str(tmp_path / "bad.ckpt")]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"tabicl-linear {verb}: --ckpt_path {tmp_path / 'bad.ckpt'} is damaged")


def save_much(arguments):
    limit_files(100_000)
    save_checkpoint({"a": torch.zeros(100_000)}, Path(arguments[0]))


def test_a_disk_that_fills_up_leaves_the_file_as_it_was(forked, tmp_path):
    """The size of files is limited, as a full disk would do it, in a process of its own."""
    path = tmp_path / "last.ckpt"
    save_checkpoint({"a": torch.zeros(3)}, path)
    run = forked(save_much, path)
    assert run.wait() == 1
    assert run.said()[-1].startswith("OSError"), run.said()
    assert same(load_checkpoint(path, ""), {"a": torch.zeros(3)})
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.mark.parametrize(
    ("kept_by", "of"),
    [(np.float64(1.0), "float64"), (pd.DataFrame(), "DataFrame"), (lambda: 1, "function")],
)
def test_what_could_not_be_read_back_is_not_written(kept_by, of, tmp_path):
    """`torch.save` takes the first two, and the run would be lost."""
    path = tmp_path / "last.ckpt"
    save_checkpoint({"step": 1}, path)
    later = {"step": 2, "callbacks": {"Mine": [torch.ones(2), {"best": kept_by}]}}
    with pytest.raises(CheckpointError, match=rf"\['callbacks'\]\['Mine'\]\[1\]\['best'\].*{of}"):
        save_checkpoint(later, path)
    assert load_checkpoint(path, "") == {"step": 1}
    assert list(tmp_path.iterdir()) == [path]

"""State files that are damaged, of another version or no such files are refused by name."""

import pytest
import torch
from estimator.files.test_state_file import fitted
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.tensor_file import checksum


@pytest.fixture
def saved(checkpoint, tmp_path):
    path = tmp_path / "a.state"
    fitted(TabICLLinearClassifier, checkpoint).save(path)
    return path


def changed(path, **texts):
    """The file with other texts in its header, and a checksum that fits."""
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        metadata = {**file.metadata(), **texts}
    metadata.pop("checksum")
    metadata["checksum"] = checksum(tensors, metadata)
    save_file(tensors, path, metadata=metadata)


def test_another_format_is_refused(saved):
    changed(saved, format="tabicl_linear.state/99", version="9.9")
    with pytest.raises(CheckpointError, match=r"format tabicl_linear.state/99.*9\.9.*save again"):
        TabICLLinearClassifier.load(saved)


@pytest.mark.parametrize(
    ("record", "another"),
    [
        ('"tag": "View"', '"tag": "Views"'),
        ('"tag": "View"', '"class": "subprocess:Popen"'),
        ('"tag": "View"', '"class": "tabicl_linear.estimator.views:Sequence"'),
        ('"row_seed"', '"row_sowing"'),
        ('"is": "tuple"', '"is": "unknown"'),
        ('"items"', '"things"'),
    ],
)
def test_records_that_are_not_of_this_version_are_refused(saved, record, another):
    with safe_open(saved, framework="pt") as file:
        content = file.metadata()["content"]
    assert record in content
    changed(saved, content=content.replace(record, another), version="0.0.9")
    with pytest.raises(CheckpointError, match=r"written by tabicl-linear 0\.0\.9.*fit and save"):
        TabICLLinearClassifier.load(saved)


def test_damage_is_noticed(saved, tmp_path):
    whole = saved.read_bytes()
    for place in (len(whole) - 3, len(whole) // 2):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match="damaged"):
            TabICLLinearClassifier.load(saved)
    saved.write_bytes(whole[:-10])
    with pytest.raises(CheckpointError, match="damaged"):
        TabICLLinearClassifier.load(saved)


def test_other_files_are_refused(checkpoint, saved, tmp_path):
    with pytest.raises(CheckpointError, match="no file"):
        TabICLLinearClassifier.load(tmp_path / "none")
    with pytest.raises(CheckpointError, match="damaged or not a file"):
        TabICLLinearClassifier.load(checkpoint)
    with pytest.raises(CheckpointError, match=r"TabICLLinearClassifier\.load"):
        RandomFeatureRidge.load(saved)
    changed(saved, format="tabicl_linear/2")
    with pytest.raises(CheckpointError, match="weights of a model"):
        TabICLLinearClassifier.load(saved)
    changed(saved, format="pt")
    with pytest.raises(CheckpointError, match="not a file that"):
        TabICLLinearClassifier.load(saved)
    with pytest.raises(ConfigError, match="dtype"):
        TabICLLinearClassifier.load(saved, dtype=torch.float16)
    with pytest.raises(ConfigError, match="device"):
        TabICLLinearClassifier.load(saved, device="nowhere")

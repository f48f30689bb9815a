"""Files of named tensors."""

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, save

from tabicl_linear import tensor_file
from tabicl_linear.tensor_file import file_bytes

TENSORS = {
    "weights": torch.arange(6, dtype=torch.float32).view(2, 3),
    "rows 日本": torch.tensor([1.5, -0.25], dtype=torch.bfloat16),
    "none": torch.empty(0, 4),
    "flags": torch.tensor([True, False, True]),
    "counts": torch.tensor(7),
}
METADATA = {f"key {number}": "" for number in range(12)} | {
    "marks": 'a "quoted" text, a \\ and \n\t\x01\x7f',
    "script": "ünïcödé 日本 🌲",
}


def test_what_is_saved_twice_has_the_same_bytes():
    """The library alone orders metadata by chance: 12! orders, so that two are never equal."""
    backwards = dict(reversed(METADATA.items()))
    assert file_bytes(TENSORS, METADATA) == file_bytes(TENSORS, backwards)


@pytest.mark.parametrize("tensors", [TENSORS, {}], ids=["tensors", "none"])
def test_the_library_reads_what_was_saved(tmp_path, tensors):
    path = tmp_path / "file.safetensors"
    path.write_bytes(file_bytes(tensors, METADATA))
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == METADATA
    tensors_read = load(path.read_bytes())
    assert tensors_read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert tensors_read[name].dtype == tensor.dtype
        assert torch.equal(tensors_read[name], tensor)


def test_tensors_begin_where_the_library_puts_them():
    """Aligned, so that they can be used where they lie."""
    written, expected = file_bytes(TENSORS, METADATA), save(TENSORS, metadata=METADATA)
    header, expected_header = (int.from_bytes(data[:8], "little") for data in (written, expected))
    assert header % 8 == 0
    assert written[8 + header :] == expected[8 + expected_header :]


def test_a_file_that_was_changed_is_not_whole(tmp_path):
    path = tmp_path / "file.safetensors"
    tensor_file.write(path, TENSORS, METADATA)
    tensors, metadata = tensor_file.read(path)
    assert tensors.keys() == TENSORS.keys()
    assert METADATA.items() <= metadata.items()
    assert tensor_file.is_whole(tensors, metadata)
    assert not tensor_file.is_whole(tensors | {"counts": torch.tensor(8)}, metadata)
    assert not tensor_file.is_whole(tensors, metadata | {"marks": ""})
    assert not tensor_file.is_whole(tensors, METADATA)

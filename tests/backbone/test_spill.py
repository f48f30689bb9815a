"""Hidden tokens in a file instead of memory: the same states, bit for bit."""

import pytest
import torch
from contract.variants import make, served, task

from tabicl_linear.backbone import long_context
from tabicl_linear.backbone.spill import Spilled
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.kernels.state import tensors

PAIRS = [
    (mixer, readout)
    for mixer, readout in served()
    if mixer in ("DeltaNet", "DeltaNet+decay+conv", "LayerLocalRidge", "SoftmaxAttention")
]


@pytest.mark.parametrize(("mixer", "readout"), PAIRS)
def test_states_are_the_same(mixer, readout, tmp_path, monkeypatch):
    monkeypatch.setattr(long_context, "SLAB_BYTES", 1)  # a slab for every chunk
    model, batch = make(mixer, readout), task(40, num_context=40)
    with torch.no_grad():
        states = [
            model.fit(batch.x, batch.y, rows_per_chunk=7, spill=spill) for spill in (None, tmp_path)
        ]
    for a, b in zip(*map(tensors, states), strict=True):
        assert torch.equal(a, b)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_used_and_does_not_grow_with_the_layers(tmp_path, monkeypatch):
    files = []

    class Watched(Spilled):
        def __init__(self, folder):
            super().__init__(folder)
            files.append(self)

    monkeypatch.setattr(long_context, "Spilled", Watched)
    monkeypatch.setattr(long_context, "SLAB_BYTES", 1)
    model, batch = make("DeltaNet", "final_state"), task(40, num_context=40)
    with torch.no_grad():
        model.fit(batch.x, batch.y, rows_per_chunk=8, spill=tmp_path)
        hidden = 2 * 40 * 32 * 8  # tasks, rows, width, bytes
        assert [file._end for file in files] == [hidden]
        make("DeltaNet", "causal").fit(batch.x, batch.y, rows_per_chunk=8, spill=tmp_path)
    assert len(files) == 1  # one chunk of a causal model is small


def test_it_is_a_list_of_tensors(tmp_path):
    result = Spilled(tmp_path)
    items = [torch.arange(6.0).reshape(2, 3), torch.tensor([[True]]), torch.ones(2).bfloat16()]
    result.extend(items)
    for _ in range(2):  # reading takes nothing away
        assert all(torch.equal(a, b) for a, b in zip(result, items, strict=True))
        assert [a.dtype for a in result] == [b.dtype for b in items]
    result[0] = -items[0]
    result[1] = items[0]  # larger than before
    assert torch.equal(result[0], -items[0])
    assert torch.equal(result[1], items[0])
    assert torch.equal(result.pop(), items[2])
    assert len(result) == 2


def test_gradients_are_refused(tmp_path):
    model, batch = make("DeltaNet", "final_state"), task(40, num_context=40)
    with pytest.raises(ConfigError, match=r"torch\.no_grad"):
        model.fit(batch.x, batch.y, rows_per_chunk=7, spill=tmp_path)


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path}/none .No such file.*TMPDIR"):
        Spilled(tmp_path / "none")


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    said = "long context cannot be written after 0 bytes .No space left.*TMPDIR"
    with open("/dev/full", "w+b") as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: full)
        with pytest.raises(DataError, match=said):
            Spilled(tmp_path).append(torch.ones(1))

"""What counts as free memory, and which errors say that none is left."""

import pytest
import torch

from tabicl_linear import free_memory

CPU = torch.device("cpu")


def test_free_memory_is_told():
    free = free_memory.free_bytes(CPU)
    assert free is not None
    assert 2**20 < free < 2**50


@pytest.mark.parametrize(
    ("most", "used", "free"),
    [("max", 0, 3072), ("2000", 500, 1500), ("9000", 500, 3072), ("2000", 2001, 0)],
)
def test_a_container_has_a_limit_to_which_pages_of_files_do_not_count(
    tmp_path, monkeypatch, most, used, free
):
    """A container that has read a large file is full of them, and `fit` refused any table there."""
    (tmp_path / "meminfo").write_text("MemTotal:   9 kB\nMemAvailable:   3 kB\n")
    (tmp_path / "memory.max").write_text(f"{most}\n")
    (tmp_path / "memory.current").write_text(f"{used + 300 + 40}\n")
    (tmp_path / "memory.stat").write_text(
        f"anon {used}\nfile 340\nactive_file 300\ninactive_file 40\n"
    )
    monkeypatch.setattr(free_memory, "SYSTEM", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "CONTAINER", tmp_path)
    assert free_memory.free_bytes(CPU) == free


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"), True),
        (RuntimeError("alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("[enforce fail] not enough memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("shapes differ"), False),
    ],
)
def test_errors_say_that_memory_ran_out(error, expected):
    assert free_memory.is_out_of_memory(error) == expected

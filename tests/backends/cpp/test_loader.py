"""Which of the two libraries is loaded."""

import ctypes

import pytest

from tabicl_linear.backends.cpp import loader
from tabicl_linear.backends.cpp.loader import library


class Library(ctypes.CDLL):
    """One that says what the processor has."""

    def __init__(self, many_registers):
        self.many_registers = many_registers

    def tabicl_many_registers(self):
        return self.many_registers


@pytest.mark.parametrize(
    ("many_registers", "is_built", "expected"),
    [
        (1, True, loader._WIDE),
        (1, False, loader._LIBRARY),
        (0, True, loader._LIBRARY),
    ],
)
def test_wide_vectors_are_for_processors_that_have_them(
    monkeypatch, many_registers, is_built, expected
):
    """Elsewhere they would be computed in memory, or not at all."""
    libraries = {name: Library(many_registers) for name in (loader._LIBRARY, loader._WIDE)}
    monkeypatch.setattr(loader, "_loaded", libraries.__getitem__)
    monkeypatch.setattr(loader, "find_spec", lambda name: name if is_built else None)
    assert library.__wrapped__() is libraries[expected]

"""Which of the two libraries is loaded, and that both compute the same."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tabicl_linear.backends.cpp import loader
from tabicl_linear.backends.cpp.loader import library, unavailable


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


WITHOUT_WIDE_VECTORS = """
import sys
import pytest

class Plain:
    def pytest_configure(self):
        from tabicl_linear.backends.cpp import loader
        from tabicl_linear.backends.cpp.loader import library
        loader._WIDE = "not_built"
        assert library()._name == loader._loaded(loader._LIBRARY)._name

sys.exit(pytest.main(sys.argv[1:], [Plain()]))
"""


@pytest.mark.skipif(
    unavailable() is not None or library()._name == loader._loaded(loader._LIBRARY)._name,
    reason="this processor has no other library than the one that all tests use",
)
def test_the_library_of_other_processors_computes_the_same():
    """Where there are wide vectors all other tests use them."""
    tests = Path(__file__).parents[2]
    folder = tests / "backends" / "cpp"
    files = [folder / f"test_{name}.py" for name in ("rules", "random", "cell_attention")]
    names = "every_width or of_pytorch or values_and_gradients"
    arguments = ["-c", WITHOUT_WIDE_VECTORS, "-p", "no:xdist", "-k", names, *files]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tests.parent, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr

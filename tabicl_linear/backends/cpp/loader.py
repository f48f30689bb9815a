"""The C++ library of this package (`csrc/`), built at installation if there is a compiler."""

import ctypes
from functools import cache
from importlib.util import find_spec

from tabicl_linear.types import Tensor

_LIBRARY = "tabicl_linear.backends.cpp._library"
_WIDE = "tabicl_linear.backends.cpp._library_wide"
_VERSION = 14
"""Version of the C++ interface; `tabicl_version` in `csrc/tokenwise.cpp` must be the same."""


@cache
def unavailable() -> str | None:
    """Why the library cannot be used, or None if it can."""
    spec = find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        return (
            "the C++ kernels were not built: there was no C++ compiler (g++ or clang++) when "
            "the package was installed; install one and then reinstall the package"
        )
    try:
        version = library().tabicl_version()
    except OSError as error:
        return f"the C++ kernels cannot be loaded: {error}"
    except AttributeError:
        version = 1
    if version != _VERSION:
        return (
            f"the C++ kernels are those of another version ({version}, not {_VERSION}) of the "
            "package; reinstall the package"
        )
    return None


@cache
def library() -> ctypes.CDLL:
    """Return the library, compiled for 512-bit vectors if the processor has them.

    Call `unavailable` first.
    """
    plain = _loaded(_LIBRARY)
    if plain.tabicl_many_registers() and find_spec(_WIDE) is not None:
        return _loaded(_WIDE)
    return plain


def _loaded(name: str) -> ctypes.CDLL:
    spec = find_spec(name)
    assert spec is not None, "not built"
    assert spec.origin is not None, "not built"
    return ctypes.CDLL(spec.origin)


def pointer(x: Tensor | None) -> int | None:
    """Return the address of a tensor's data; None for None."""
    return None if x is None else x.data_ptr()

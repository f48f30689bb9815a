"""The C++ library of this package (`csrc/`), built at installation if there is a compiler."""

import ctypes
from functools import cache
from importlib.util import find_spec
from typing import Any

from tabicl_linear.types import Tensor

ADDRESS, COUNT = ctypes.c_void_p, ctypes.c_int64

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


def fields(
    addresses: str, counts: str, *, floats: str = "", doubles: str = "", flags: str = ""
) -> tuple[tuple[str, Any], ...]:
    """Fields of a structure that a function of the library takes; each text holds their names."""
    kinds = (
        *((addresses, ADDRESS), (counts, COUNT)),
        *((floats, ctypes.c_float), (doubles, ctypes.c_double), (flags, ctypes.c_int)),
    )
    return tuple((name, kind) for names, kind in kinds for name in names.split())


@cache
def function(name: str, problem: type[ctypes.Structure], *others: Any, result: Any = None) -> Any:
    """Return `tabicl_{name}`, which takes the address of a problem and arguments of other types."""
    symbol = library()[f"tabicl_{name}"]
    symbol.argtypes, symbol.restype = (ctypes.POINTER(problem), *others), result
    return symbol


def run(
    name: str, problem: ctypes.Structure, threads: int | None = None, *, failure: str | None = None
) -> None:
    """Call `tabicl_{name}`.

    Args:
        name: Name of the function, without its prefix.
        problem: What it takes; it holds addresses of tensors, which must outlive the call.
        threads: Number of threads; None for a function that takes none.
        failure: Message of the error, for a function that says whether there was enough memory.

    Raises:
        MemoryError: There was not.
    """
    result = None if failure is None else ctypes.c_bool
    if threads is None:
        is_done = function(name, type(problem), result=result)(ctypes.byref(problem))
    else:
        called = function(name, type(problem), COUNT, result=result)
        is_done = called(ctypes.byref(problem), threads)
    if failure is not None and not is_done:
        raise MemoryError(failure)


def pointer(x: Tensor | None) -> int | None:
    """Return the address of a tensor's data; None for None."""
    return None if x is None else x.data_ptr()

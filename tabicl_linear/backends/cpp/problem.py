"""The arguments of the update rules in C++ (`csrc/problem.h`), and the library's functions."""

import ctypes
from collections.abc import Sequence
from functools import cache

import torch

from tabicl_linear.backends.cpp.loader import library
from tabicl_linear.types import Tensor

FEW = 1 << 16
"""With fewer multiplications, a second thread takes longer to start than it saves."""


class View(ctypes.Structure):
    """An array [batch, token, head, channel] whose channels are contiguous; null for none."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "token", "head", "lowered")),
    )


class Problem(ctypes.Structure):
    """Sizes, inputs and initial state of an update rule."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "tokens", "heads", "keys", "values")),
        *((name, ctypes.c_int64) for name in ("gates", "chunk")),
        *((name, View) for name in ("q", "k", "v", "beta", "decay")),
        ("initial", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
    )


@cache
def functions() -> ctypes.CDLL:
    """The library, with the arguments of its update rules declared."""
    rules = library()
    address, problem, view = ctypes.c_void_p, ctypes.POINTER(Problem), ctypes.POINTER(View)
    rules.tabicl_forward.argtypes = [problem, *[address] * 3]
    rules.tabicl_backward.argtypes = [problem, *[address] * 3, view, *[address] * 6]
    rules.tabicl_additive.argtypes = [problem, *[address] * 2]
    rules.tabicl_additive_back.argtypes = [problem, view, *[address] * 7]
    return rules


def problem(inputs: Sequence[Tensor | None], S: Tensor, *, chunk: int = 0) -> Problem:
    """Return a rule's sizes, inputs and state as the library takes them.

    Args:
        inputs: q, k, v, beta and decay, of which q, beta and decay may be None; each returned by
            `channels_last`. They must outlive the call, which gets only their addresses.
        S: Contiguous state [b h v k] before the first token.
        chunk: Tokens in a chunk; 0 for rules that go token by token.
    """
    q, k, v, beta, decay = inputs
    assert k is not None, "keys are always given"
    assert v is not None, "values are always given"
    batch, tokens, heads, keys = k.shape
    whole = S.shape == (batch, heads, v.shape[-1], keys) and v.shape[:-1] == k.shape[:-1]
    whole = whole and (q is None or q.shape == k.shape)
    whole = whole and (beta is None or beta.shape == k.shape[:-1])
    whole = whole and (decay is None or decay.shape in (k.shape, (*k.shape[:-1], 1)))
    assert whole, f"the library looks at no shapes: {[x if x is None else x.shape for x in inputs]}"
    few = k.numel() * v.shape[-1] < FEW
    return Problem(
        *(batch, tokens, heads, keys, v.shape[-1]),
        *(0 if decay is None else decay.shape[-1], chunk),
        *map(view, inputs),
        S.data_ptr(),
        1 if few else torch.get_num_threads(),
    )


def channels_last(x: Tensor) -> Tensor:
    """Return `x` with contiguous channels (the last of [b t h e]), a copy only if necessary."""
    return x if x.ndim == 3 or x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def view(x: Tensor | None) -> View:
    """Return address and strides of a tensor [b t h] or [b t h e]; an empty view for None."""
    if x is None:
        return View()
    return View(x.data_ptr(), *x.stride()[:3], x.dtype == torch.bfloat16)


def check(status: int) -> None:
    """Raise MemoryError for a call that ran out of memory."""
    if status:
        raise MemoryError("The C++ kernel ran out of memory; use fewer rows or tasks at once.")

"""The arguments of the update rules in C++ (`csrc/problem.h`), and their call."""

import ctypes
from collections.abc import Sequence

import torch

from tabicl_linear.backends.cpp.loader import ADDRESS, fields, function
from tabicl_linear.types import Tensor

FEW = 1 << 16
"""With fewer multiplications, a second thread takes longer to start than it saves."""


class View(ctypes.Structure):
    """An array [batch, token, head, channel] whose channels are contiguous; null for none."""

    _fields_ = fields("data", "batch token head lowered")


class Problem(ctypes.Structure):
    """Sizes, inputs and initial state of an update rule."""

    _fields_ = (
        *fields("", "batch tokens heads keys values gates chunk"),
        *((name, View) for name in ("q", "k", "v", "beta", "decay")),
        *fields("initial", "threads"),
    )


def run(name: str, rule: Problem, *others: View | int | None) -> None:
    """Call `tabicl_{name}` with the problem of a rule, views, and addresses of other tensors.

    Raises:
        MemoryError: There was not enough memory.
    """
    kinds = (ctypes.POINTER(View) if isinstance(other, View) else ADDRESS for other in others)
    if function(name, Problem, *kinds, result=ctypes.c_int)(rule, *others):
        raise MemoryError("The C++ kernel ran out of memory; use fewer rows or tasks at once.")


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

"""Runs flash-linear-attention's Triton kernels on the CPU, in Triton's own interpreter.

The interpreter is chosen when triton is imported, by TRITON_INTERPRET=1. Between triton 3.7.1 and
the kernels of fla-core 0.6.0 stand two gaps, which `install` closes. What is interpreted is the
algorithm, with its masks and its float32 arithmetic; tensor cores and the compiler are not part
of it.
"""

import os
import warnings
from collections.abc import Iterator

import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import GridExecutor


class LoopIndex(int):
    """The index of a loop in a kernel, which compiled code may cast as if it were a tensor."""

    def to(self, dtype: tl.dtype) -> tl.tensor:
        return tl.cast(int(self), dtype)


def install() -> None:
    """Close the gaps, then import fla. To be called before anything else imports it."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("These tests need TRITON_INTERPRET=1; run them with `make test-fla`.")
    # Timing needs the driver of a GPU. Equal times make the autotuner choose its first setting.
    Autotuner._bench = lambda tuner, *args, config, **meta: [0.0, 0.0, 0.0]
    run_grid = GridExecutor.__call__

    def run_grid_with_loop_indices(executor: GridExecutor, *args: object, **kwargs: object) -> None:
        # A global of the kernel's module goes before the builtin of the same name.
        names = executor.fn.__globals__
        names["range"] = _loop_indices
        try:
            run_grid(executor, *args, **kwargs)
        finally:
            del names["range"]

    GridExecutor.__call__ = run_grid_with_loop_indices
    with warnings.catch_warnings():
        # At import fla-core warns that there is no GPU, and torch that parts of itself are old.
        warnings.simplefilter("ignore")
        import fla.layers  # noqa: F401


def _loop_indices(*bounds: int) -> Iterator[LoopIndex]:
    return map(LoopIndex, range(*bounds))

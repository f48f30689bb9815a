"""The one table of tolerances. Never loosened for a test that does not pass.

`rms` bounds the root mean square of the error over that of the truth; `contract` bounds relations
that hold exactly in real arithmetic, checked in float64; `rounding` is what a handful of float32
roundings add up to, for losses of digits that could hide below `rms`; `autocast` bounds what the
roundings of a whole layer to 16 bits add up to, against itself in float32; `searched` is how
far two minimisers stop from the same minimum.
"""

import torch

RMS = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 5e-3}
CONTRACT = 1e-12
ROUNDING = 1e-6
SEARCHED = 1e-6
AUTOCAST = {torch.float16: 4e-3, torch.bfloat16: 2e-2}


def relative_rms(actual: torch.Tensor, truth: torch.Tensor) -> float:
    """Root mean square error relative to the truth; 0 for two zero tensors."""
    assert actual.shape == truth.shape, (actual.shape, truth.shape)
    error = (actual.double() - truth.double()).square().mean().sqrt().item()
    scale = truth.double().square().mean().sqrt().item()
    return error / scale if scale > 0 else error


def assert_close(
    actual: torch.Tensor, truth: torch.Tensor, tolerance: float, what: str = ""
) -> None:
    """Assert a relative root mean square error of at most `tolerance`; NaN never passes."""
    error = relative_rms(actual, truth)
    assert error <= tolerance, f"{what}: relative RMS error {error:.2e} > {tolerance:.0e}"

"""The device and the CPU threads that a classifier computes with."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import joblib
import torch

from tabicl_linear.errors import ConfigError


def resolved_device(given: str | torch.device | None) -> torch.device:
    """The device that an argument names; None takes CUDA where it is available.

    Raises:
        ConfigError: It is not a device, not supported, or not on this machine.
    """
    if given is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"device={given!r} is not a torch device; give 'cpu', 'cuda' or 'cuda:INDEX'."
        ) from error
    if device.type not in ("cpu", "cuda"):
        # Column statistics are float64, which MPS, for example, does not support.
        raise ConfigError(
            f"device={str(device)!r} is not supported; give 'cpu', 'cuda' or 'cuda:INDEX'."
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device={str(device)!r}, but torch sees {torch.cuda.device_count()} CUDA devices; "
            "give another device, or 'cpu'."
        )
    return device


@contextmanager
def computing(n_jobs: int | None) -> Iterator[None]:
    """Set torch up for the work of a classifier, and restore the caller's settings afterwards.

    Torch takes `n_jobs` CPU threads (-1: all cores, -2: all but one, and so on). None leaves the
    number as it is, up to the cores that this process may use: torch does not know that a container
    has only some of them, and threads that wait for a core take many times as long.

    Tensors that are made without a device are on the CPU, whatever `torch.set_default_device` says,
    since C++ and NumPy read some of them.
    """
    before, cores = torch.get_num_threads(), joblib.cpu_count()
    if n_jobs is None:
        count = min(before, cores)
    else:
        count = n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs)
    is_on_cpu = torch.get_default_device().type == "cpu"
    torch.set_num_threads(count)
    try:
        with nullcontext() if is_on_cpu else torch.device("cpu"):
            yield
    finally:
        torch.set_num_threads(before)

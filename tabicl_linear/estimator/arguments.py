"""Constructor arguments that all classifiers share: their checks, and what they stand for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator

from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.class_weights import ClassWeight
from tabicl_linear.estimator.memory import rows_that_fit
from tabicl_linear.estimator.preprocessing import CategoricalFeatures
from tabicl_linear.estimator.presets import PRESETS, EnsembleName, Preset


class EnsembleArguments(BaseEstimator):
    """The arguments, which subclasses take and store; see `TabICLLinearClassifier`."""

    ensemble: EnsembleName
    n_estimators: int | None
    softmax_temperature: float | Literal["auto"] | None
    average_logits: bool
    class_weight: ClassWeight
    categorical_features: CategoricalFeatures
    device: str | torch.device | None
    random_state: Any
    n_jobs: int | None
    rows_per_batch: int | None
    verbose: int

    def _check_arguments(self) -> None:
        if self.ensemble not in PRESETS:
            raise ConfigError(f"ensemble={self.ensemble!r}: give one of {', '.join(PRESETS)}.")
        given = (
            name for name in ("n_estimators", "rows_per_batch") if vars(self)[name] is not None
        )
        self._check_counts(*given)
        temperature: Any = self.softmax_temperature
        is_number = isinstance(temperature, Real) and not isinstance(temperature, bool)
        if not (temperature in (None, "auto") or (is_number and 0 < temperature < np.inf)):
            raise ConfigError(
                f"softmax_temperature={temperature!r}: give a positive number, 'auto' or None."
            )
        if not isinstance(self.average_logits, bool | np.bool_):
            raise ConfigError(f"average_logits={self.average_logits!r}: give True or False.")
        if self.n_jobs is not None and (not _is_integer(self.n_jobs) or self.n_jobs == 0):
            raise ConfigError(
                f"n_jobs={self.n_jobs!r}: give a number of threads, -1 for all, or None."
            )
        if not isinstance(self.verbose, int | np.integer | np.bool_):
            raise ConfigError(f"verbose={self.verbose!r}: give 1 to show progress, or 0.")

    def _check_counts(self, *names: str) -> None:
        """Refuse arguments that are not positive integers."""
        for name in names:
            value = getattr(self, name)
            if not _is_integer(value) or value < 1:
                raise ConfigError(f"{name}={value!r}: give a positive integer.")

    def _resolved_device(self) -> torch.device:
        return resolved_device(self.device)

    @property
    def _preset(self) -> Preset:
        """The ensemble of that name, with what the arguments set."""
        preset = PRESETS[self.ensemble]
        if self.n_estimators is not None:
            preset = preset._replace(n_estimators=int(self.n_estimators))
        if isinstance(self.softmax_temperature, Real):
            preset = preset._replace(softmax_temperature=float(self.softmax_temperature))
        return preset

    @property
    def _fixed_temperature(self) -> float:
        """The temperature of a fit that sees its rows piece by piece.

        Raises:
            ConfigError: It is to be calibrated.
        """
        if self.softmax_temperature == "auto":
            raise ConfigError(
                "softmax_temperature='auto' needs all rows at once: give a number or None to fit "
                "piece by piece."
            )
        return self._preset.softmax_temperature

    def _rows_at_a_time(self, num_rows: int) -> int:
        """Rows in the network at a time for a table of so many rows, over all members."""
        given = self.rows_per_batch
        rows = rows_that_fit(self._resolved_device()) if given is None else int(given)
        return min(rows, num_rows * self._preset.n_estimators)


def refuse(unsupported: dict[str, Any]) -> None:
    """Refuse arguments of `fit` that are not supported, with the reason.

    Raises:
        TypeError: An unknown argument.
        ConfigError: Weights of rows.
    """
    for name, value in unsupported.items():
        if name != "sample_weight":
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        if value is not None:
            raise ConfigError(
                "sample_weight is not supported: the learner reads every row once and was not "
                "pretrained with weights. Repeat or sample rows in proportion to their weights, or "
                "set class_weight."
            )


def resolved_device(given: str | torch.device | None) -> torch.device:
    """The device that an argument names; by default CUDA where it is available.

    Raises:
        ConfigError: It is no device, or not one of this machine.
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


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Set torch's CPU threads, and restore them afterwards."""
    if n_jobs is None:
        yield
        return
    before = torch.get_num_threads()
    cores = os.cpu_count() or 1
    torch.set_num_threads(n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""What a classifier is asked to do: its arguments, checked and resolved."""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from sklearn.utils import check_random_state

from tabicl_linear.errors import ConfigError, one_line
from tabicl_linear.estimator.arrays import Float32Array
from tabicl_linear.estimator.choices import MODES, LongContextMode
from tabicl_linear.estimator.class_weights import ClassWeight
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.devices import resolved_device
from tabicl_linear.estimator.learners.interface import ContextLearner, OwnPreset, Preset
from tabicl_linear.estimator.members.memory import Result, retried_smaller, rows_that_fit
from tabicl_linear.estimator.notices import brief

EnsembleName = Literal["default", "paper"]
TreesArgument = Literal["auto"] | bool
Choice = TypeVar("Choice")

PRESETS: dict[EnsembleName, Preset] = {
    "default": Preset(n_estimators=8, softmax_temperature=0.9),
    # The authors' evaluation of real tables (`pfns/evaluation/real_world_presets.py`).
    "paper": Preset(n_estimators=10, softmax_temperature=0.8),
}
OF_LEARNERS = ("model", "trees", "ensemble")
"""Arguments that decide what learns from the rows; they hold from the next fit on."""
OF_MEMBERS = ("n_estimators", "long_context", "categorical_features")
"""Arguments that also count while trees hold all rows so far, as these are fitted anew."""
REFINED_AT_ONCE = (
    "refine=True optimises states on all rows at once, and here they come piece by piece: fit one "
    "table in memory, or set refine=False and fit anew."
)


@dataclass(frozen=True)
class Plan:
    """Checked arguments of a classifier; see `TabICLLinearClassifier` for what they mean.

    Attributes:
        preset: Values of `n_estimators` and `softmax_temperature` where they are None.
        new_preprocessor: Makes a `TablePreprocessor`, given whether it encodes `pairs` of columns.
        seed: `random_state` as it was given. In the plan of one fit (`drawn`) it is an integer, and
            seeds the draws of views, held-out rows and minibatches.
    """

    n_estimators: int | None
    softmax_temperature: float | Literal["auto"] | None
    preset: Preset
    average_logits: bool
    class_weight: ClassWeight
    new_preprocessor: Callable[..., TablePreprocessor]
    device: torch.device
    seed: Any
    n_jobs: int | None
    rows_per_batch: int | None
    progress: bool
    refine: bool
    long_context: LongContextMode

    @property
    def num_members(self) -> int:
        """Members of the ensemble."""
        return self.n_estimators or self.preset.n_estimators

    @property
    def is_calibrated(self) -> bool:
        """Whether the temperature is calibrated on rows held out."""
        return self.softmax_temperature == "auto"

    @property
    def fixed_temperature(self) -> float:
        """The temperature if it is not calibrated; a calibrated one has a prior around it."""
        temperature = self.softmax_temperature
        return temperature if isinstance(temperature, float) else self.preset.softmax_temperature

    def with_preset_of(self, learner: ContextLearner, num_rows: int, num_columns: int) -> "Plan":
        """The plan, with the learner's own preset if it has one for a matrix of this size."""
        if not isinstance(learner, OwnPreset):
            return self
        return replace(self, preset=learner.preset(num_rows, num_columns))

    def drawn(self) -> "Plan":
        """The plan of one fit, with an integer as seed; a generator in `seed` advances.

        Raises:
            ConfigError: `seed` is neither an integer in range, nor a generator, nor None.
        """
        try:
            generator = check_random_state(self.seed)
        except ValueError as error:
            raise ConfigError(
                f"random_state={self.seed!r}: give an integer from 0 to {2**32 - 1}, a "
                "numpy.random.RandomState, or None."
            ) from error
        return replace(self, seed=int(generator.randint(2**31 - 1)))

    def within_memory(
        self,
        compute: Callable[[int], Result],
        doing: str,
        matrix: Float32Array,
        most: int = sys.maxsize,
    ) -> Result:
        """Call `compute` with the number of rows that the network may read at a time.

        Args:
            compute: Takes this number, in which a row counts once for each member that reads it. If
                memory runs out, it is called once more with fewer rows (`retried_smaller`).
            doing: What `compute` does, for the error message.
            matrix: All rows `[rows, columns]`.
            most: Upper bound of the number.

        Returns:
            What `compute` returns.
        """
        # To be refined, members are fitted one at a time: each stops early on its own.
        all_rows = len(matrix) * (1 if self.refine else self.num_members)
        rows, limit = min(all_rows, most), self.rows_per_batch
        rows = rows_that_fit(rows, self.device) if limit is None else min(rows, limit)
        what = f"{doing} {len(matrix)} rows x {matrix.shape[1]} columns"
        return retried_smaller(compute, rows, what=what, device=self.device)

    def check_pieces(self, *, grows: bool) -> None:
        """Raise `ConfigError` if a decision needs all rows at once, for rows that come in pieces.

        With `grows`, each is added to the states and let go; else a file holds all encoded rows.
        """
        if self.refine:
            raise ConfigError(REFINED_AT_ONCE)
        if grows and self.long_context != "full":
            raise ConfigError(
                f"long_context={self.long_context!r} needs all rows at once: give 'full' to fit "
                "piece by piece."
            )
        if self.is_calibrated:
            raise ConfigError(
                "softmax_temperature='auto' needs all rows at once: give a number or None to fit "
                "piece by piece."
            )


def checked_plan(arguments: Mapping[str, Any]) -> Plan:
    """The plan that the constructor arguments of a classifier make.

    Arguments that choose the learners, such as `model`, are left for the classifier to check.

    Raises:
        ConfigError: An argument is out of range; the message says what to give.
    """
    trees = arguments["trees"]
    if not (isinstance(trees, bool | np.bool_) or (isinstance(trees, str) and trees == "auto")):
        raise ConfigError(f"trees={trees!r}: give 'auto', True or False.")
    # Only classifiers with a pretrained model have these two arguments.
    refine = "refine" in arguments and _flag(arguments, "refine")
    long_context = _one_of(MODES, "long_context", arguments.get("long_context", "full"))
    if refine and long_context != "full":
        raise ConfigError(
            f"refine=True optimises the state of one context, and long_context="
            f"{long_context!r} may make several: give long_context='full'."
        )
    return Plan(
        n_estimators=checked_count(arguments, "n_estimators"),
        softmax_temperature=_temperature(arguments["softmax_temperature"]),
        preset=PRESETS[_one_of(PRESETS, "ensemble", arguments["ensemble"])],
        average_logits=_flag(arguments, "average_logits"),
        class_weight=arguments["class_weight"],
        new_preprocessor=partial(TablePreprocessor, arguments["categorical_features"]),
        seed=arguments["random_state"],
        n_jobs=_num_threads(arguments["n_jobs"]),
        rows_per_batch=checked_count(arguments, "rows_per_batch"),
        progress=_is_verbose(arguments["verbose"]),
        refine=refine,
        long_context=long_context,
        device=resolved_device(arguments["device"]),
    )


def check_unchanged(now: Mapping[str, Any], then: Mapping[str, Any], *, are_held: bool) -> None:
    """Raise `ConfigError` for an argument that has changed and that later rows cannot obey.

    Args:
        now: The constructor arguments.
        then: Those that the rows before were read with.
        are_held: Whether trees hold all rows before, and thus fit them anew.
    """
    names = list(OF_LEARNERS)
    if not are_held:
        names += [*OF_MEMBERS, "random_state"]
        names += ["softmax_temperature"] if now["softmax_temperature"] == "auto" else []
    for name in names:
        # As objects: NumPy 2.0 fails to compare text with a truth value.
        one, other = (np.atleast_1d(np.asarray(each[name], object)) for each in (now, then))
        if not np.array_equal(one, other):
            value, before = (one_line(brief(each[name])) for each in (now, then))
            raise ConfigError(
                f"{name}={value}: the rows so far were read with {name}={before}, and this cannot "
                "change for more rows: set it back, or begin anew, with fit or with partial_fit "
                "of a new classifier."
            )


def checked_count(arguments: Mapping[str, Any], name: str) -> int | None:
    """The argument `name`: a positive integer or None; raises `ConfigError` for anything else."""
    value = arguments[name]
    if value is None:
        return None
    if not _is_integer(value) or value < 1:
        raise ConfigError(f"{name}={value!r}: give a positive integer.")
    return int(value)


def _one_of(choices: Collection[Choice], name: str, value: Any) -> Choice:
    for choice in choices:
        if value == choice:
            return choice
    raise ConfigError(f"{name}={value!r}: give one of {', '.join(map(str, choices))}.")


def _num_threads(n_jobs: Any) -> int | None:
    if n_jobs is not None and (not _is_integer(n_jobs) or n_jobs == 0):
        raise ConfigError(f"n_jobs={n_jobs!r}: give a number of threads, -1 for all, or None.")
    return None if n_jobs is None else int(n_jobs)


def _is_verbose(verbose: Any) -> bool:
    if not isinstance(verbose, int | np.integer | np.bool_):
        raise ConfigError(f"verbose={verbose!r}: give 1 to show progress, or 0.")
    return bool(verbose > 0)


def _flag(arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments[name]
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name}={value!r}: give True or False.")
    return bool(value)


def _temperature(temperature: Any) -> float | Literal["auto"] | None:
    is_number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    if not (temperature in (None, "auto") or (is_number and 0 < temperature < np.inf)):
        raise ConfigError(
            f"softmax_temperature={temperature!r}: give a positive number, 'auto' or None."
        )
    return float(temperature) if is_number else temperature


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)

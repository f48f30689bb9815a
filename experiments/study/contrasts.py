"""Contrasts of claims: weighted sums of measurements, and their estimates with intervals.

A contrast is written like `deltanet@4 - deltanet@64`; docs/study.md explains its parts and how the
interval is computed.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from experiments.study.arms import MINIMAL
from experiments.study.readings import BENCHMARKS, MEASURE_OF, Missing, Reading, Source
from tabicl_linear.errors import ConfigError

LEVEL = 0.95
_TERM = re.compile(r"([+-]) (?:(\d+)|([\w/]+)(?::(\w+))?@([\w.]+))(?: |$)")
_PLACES = ("last", "long", *BENCHMARKS)

Part = Sequence[tuple[float, Reading]]
"""The readings of one arm in a contrast, each with its weight."""


class Contrast(NamedTuple):
    """A weighted sum of readings.

    Attributes:
        text: The text from which it was read.
        constant: Number that is added.
        parts: Weighted readings by arm.
    """

    text: str
    constant: float
    parts: Mapping[str, Part]

    @classmethod
    def parse(cls, text: str) -> "Contrast":
        """Parse a text such as `one@4 - other/another:variant@64 + 1`; slashes mean a mean of arms.

        Raises:
            ConfigError: The text is not a contrast, or a variant or place in it does not exist.
        """
        signed, end, constant = text if text[:1] in "+-" else f"+ {text}", 0, 0.0
        parts: dict[str, list[tuple[float, Reading]]] = {}
        while end < len(signed):
            term = _TERM.match(signed, end)
            if term is None:
                raise ConfigError(f"contrast {text!r}: cannot read {signed[end:]!r}.")
            sign, number, arms, variant, place = term.groups(default="")
            weight, end = (1.0 if sign == "+" else -1.0), term.end()
            if number:
                constant += weight * float(number)
                continue
            _check(text, variant, place)
            names = arms.split("/")
            for arm in names:
                reading = Reading(arm, variant, place)
                parts.setdefault(arm, []).append((weight / len(names), reading))
        return cls(text, constant, parts)

    @property
    def readings(self) -> list[Reading]:
        """All readings, of all arms."""
        return [reading for part in self.parts.values() for _, reading in part]


def _check(text: str, variant: str, place: str) -> None:
    if variant not in MEASURE_OF:
        raise ConfigError(f"contrast {text!r}: no variant {variant}; there are {[*MEASURE_OF]}.")
    if place not in _PLACES and not re.fullmatch(r"\d+(\.\d+)?", place):
        raise ConfigError(f"contrast {text!r}: no place {place}; give a number or {_PLACES}.")


class Estimate(NamedTuple):
    """The estimate of a contrast.

    Attributes:
        value: Mean over datasets of the mean over seeds.
        error: Standard error from the variation of datasets and of trainings.
        training: The part of `error` from the variation between trainings; NaN if unknown.
        datasets: Number of datasets.
        seeds: Smallest number of seeds of an arm in it.
        training_degrees: Degrees of freedom of `training`; infinite where it counts as known.
    """

    value: float
    error: float
    training: float
    datasets: int
    seeds: int
    training_degrees: float = math.inf

    @property
    def degrees(self) -> float:
        """Degrees of freedom of t: from datasets alone or both parts (Welch and Satterthwaite)."""
        if math.isinf(self.training_degrees) or self.training == 0:
            return self.datasets - 1
        of_datasets = max(self.error**2 - self.training**2, 0.0)
        parts = of_datasets**2 / (self.datasets - 1), self.training**4 / self.training_degrees
        return self.error**4 / sum(parts)

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval; NaN for a single dataset."""
        if self.datasets < 2:
            return float("nan")
        return float(stats.t.ppf((1 + LEVEL) / 2, self.degrees) * self.error)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.value + self.half_width

    def p(self, threshold: float = 0.0) -> float:
        """Two-sided p of a t-test that the contrast equals `threshold`; 1 for a single dataset."""
        distance = abs(self.value - threshold)
        if self.datasets < 2:
            return 1.0
        if self.error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(2 * stats.t.sf(distance / self.error, self.degrees))


def estimate(contrast: Contrast, source: Source, *, own_arms: bool = False) -> Estimate:
    """Estimate a contrast from what was measured.

    Args:
        contrast: What to estimate.
        source: The measurements.
        own_arms: Whether the variance between trainings is estimated from the contrast's own arms,
            with few degrees of freedom, instead of pooled over all arms of the study.

    Raises:
        Missing: Something that it needs was not measured; the text names all of it.
    """
    parts = _with_lengths(contrast, source)
    tables = {arm: _part_table(part, source) for arm, part in parts.items()}
    common = sorted(set.intersection(*(set(table.index) for table in tables.values())), key=str)
    if not common:
        raise Missing("no dataset in common of " + " and ".join(tables))
    tables = {arm: table.loc[common] for arm, table in tables.items()}
    values = contrast.constant + sum(table.mean(axis="columns") for table in tables.values())
    of_datasets = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else np.nan
    units = source.measured.units
    repeated_arms = units.groupby("arm")["seed"].nunique().loc[lambda seeds: seeds > 1].index
    pool = repeated_arms.intersection([*parts]) if own_arms else repeated_arms
    varying = {arm: _between_trainings(part, source, pool) for arm, part in parts.items()}
    shares = [variance / tables[arm].shape[1] for arm, (variance, _) in varying.items()]
    training = float(np.sqrt(sum(shares)))
    of_training = 0.0 if np.isnan(training) else training
    return Estimate(
        value=float(values.mean()),
        error=float(np.hypot(of_datasets, of_training)),
        training=training,
        datasets=len(values),
        seeds=min(table.shape[1] for table in tables.values()),
        training_degrees=min(n for _, n in varying.values()) if own_arms else math.inf,
    )


def _with_lengths(contrast: Contrast, source: Source) -> dict[str, Part]:
    """Return the parts, with `last` replaced by the longest length at which all were measured."""
    absent: list[str] = []
    for reading in contrast.readings:
        try:
            source.of(reading)
        except Missing as missing:
            absent.append(str(missing))
    if absent:
        raise Missing(", ".join(dict.fromkeys(absent)))
    if all(reading.place != "last" for reading in contrast.readings):
        return dict(contrast.parts)
    shared = set.intersection(*(source.lengths(reading) for reading in contrast.readings))
    if not shared:
        raise Missing("a length in common of " + " and ".join(contrast.parts))
    place = repr(max(shared) / source.trained_rows)
    return {
        arm: [(weight, reading._replace(place=place)) for weight, reading in part]
        for arm, part in contrast.parts.items()
    }


def _part_table(part: Part, source: Source) -> pd.DataFrame:
    """Sum one arm's readings: datasets by seeds, for those that all its readings have."""
    weighted = [weight * source.table(reading) for weight, reading in part]
    total = weighted[0]
    for table in weighted[1:]:
        total = total + table  # aligned: NaN where one of them has nothing
    total = total.dropna(axis="columns", how="all").dropna()
    if total.empty:
        raise Missing(f"{part[0][1].arm}: no seed and dataset at all of its lengths")
    return total


def _between_trainings(part: Part, source: Source, pool: Collection[str]) -> tuple[float, int]:
    """Variance of an arm's part between trainings, pooled over arms, and its degrees of freedom.

    Arms of the minimal example are measured on other datasets, so they are pooled separately. NaN
    and 0 if no arm of the pool has these readings from two trainings.
    """
    squares, degrees = 0.0, 0
    for arm in pool:
        if (arm in MINIMAL) != (part[0][1].arm in MINIMAL):
            continue
        try:
            of_arm = [(weight, reading._replace(arm=arm)) for weight, reading in part]
            means = _part_table(of_arm, source).mean()
        except Missing:
            continue
        if len(means) > 1:
            squares += float(((means - means.mean()) ** 2).sum())
            degrees += len(means) - 1
    return (squares / degrees if degrees else float("nan")), degrees

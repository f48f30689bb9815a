"""Reads a term `arm:variant@place` of a contrast: a table of datasets by seeds (docs/study.md)."""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.study.measurements import Measurements
from tabicl_linear.errors import DataError

NEAR = 1.1
"""A measured length counts as a multiple of the trained rows if it is within this factor of it."""
LONG = 8
"""Multiple of the trained rows from which times and bytes count."""
SAME_SCORE = 0.01
"""Largest difference of two measured scores that may belong to the same dataset.

A plain fit takes column statistics from its own rows, `lengths` from those of the longest context;
this changes ROC-AUC by 0.003 at most, whereas two datasets differ by 0.1."""
BENCHMARKS = {"real": ("cc18", "tabarena"), "large": ("large",)}
"""Places that mean real tables, and the benchmarks that they consist of."""
COST = "cost"
"""The measure that does not depend on the weights."""


class Missing(Exception):
    """Something a claim needs was not measured; the text names it."""


class Tables:
    """All measurements of a scale, each measure read from its files once.

    Attributes:
        units: A row for each unit that was trained.
        failed: A row for each unit whose training failed.

    Raises:
        DataError: Two trained units have the same arm and seed.
    """

    def __init__(self, measured: Measurements) -> None:
        units = measured.units
        trained = units["status"] == "trained"
        self.units, self.failed = units[trained], units[~trained]
        twice = self.units[self.units.duplicated(["arm", "seed"])]
        if len(twice):
            one = twice.iloc[0]
            raise DataError(
                f"{measured.folder}: two units of {one['arm']} with seed {one['seed']}, of two "
                "recipes or commits; keep one of their folders."
            )
        self._read = cache(measured.frame)
        self._of_arms = cache(lambda measure: dict(iter(self.frame(measure).groupby("arm"))))

    def frame(self, measure: str) -> pd.DataFrame:
        """Return a measure of all units: columns arm, seed, identity and its own."""
        return self._read(measure)

    def of_arm(self, measure: str, arm: str) -> pd.DataFrame:
        """Return the rows of a measure for one arm; a table without rows if there are none."""
        return self._of_arms(measure).get(arm, self.frame(measure).iloc[:0])


class Reading(NamedTuple):
    """One quantity of one arm in a contrast.

    Attributes:
        arm: Its name.
        variant: Which quantity, a key of `MEASURE_OF`; empty for plain scores.
        place: A multiple of the trained rows, `last`, `long`, `real` or `large`.
    """

    arm: str
    variant: str
    place: str

    @property
    def measure(self) -> str:
        """The measure that contains it."""
        if self.place in BENCHMARKS:
            return "oracle_real" if self.variant in ("plain", "oracle") else "real"
        return MEASURE_OF[self.variant][0]


class Source(NamedTuple):
    """Where readings come from.

    Attributes:
        measured: All measurements of a scale.
        trained_rows: Rows of a training table at that scale.
        metric: Column of scores to read: roc_auc, accuracy or log_loss.
    """

    measured: Tables
    trained_rows: int
    metric: str

    @lru_cache(maxsize=1024)  # noqa: B019 - claims of a family share most of their readings
    def table(self, reading: Reading) -> pd.DataFrame:
        """Return the values of a reading: a row for each dataset, a column for each seed.

        The table is cached and must not be changed.

        Raises:
            Missing: It was not measured.
        """
        rows = self.of(reading)
        if reading.place in BENCHMARKS:
            rows = rows[rows["benchmark"].isin(BENCHMARKS[reading.place])]
            if reading.variant:
                rows = rows[rows["reading"] == reading.variant]
            rows = rows.assign(dataset=rows["benchmark"] + " " + rows["table"])
            return _by_seed(rows, self.metric, reading)
        return MEASURE_OF[reading.variant][1](self, rows, reading)

    def of(self, reading: Reading) -> pd.DataFrame:
        """Return all rows of the reading's measure for its arm.

        Raises:
            Missing: There are none.
        """
        rows = self.measured.of_arm(reading.measure, reading.arm)
        if rows.empty:
            raise Missing(f"{reading.arm} ({reading.measure.replace('_', ' ')})")
        return rows

    def lengths(self, reading: Reading) -> set[int]:
        """Return the numbers of rows at which a reading was measured."""
        return set(self.of(reading)["num_rows"].astype(int))

    def nearest(self, rows: pd.DataFrame, reading: Reading) -> int:
        """Return the measured number of rows that is nearest to the place of a reading.

        Raises:
            Missing: None is within the factor `NEAR` of it.
        """
        wanted = float(reading.place) * self.trained_rows
        lengths = rows["num_rows"].unique().astype(float)
        nearest = lengths[np.abs(np.log(lengths / wanted)).argmin()]
        if not 1 / NEAR <= nearest / wanted <= NEAR:
            raise Missing(f"{reading.arm} ({reading.measure} at {wanted:,.0f} rows)")
        return int(nearest)


def _scores(source: Source, rows: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    at = rows[rows["num_rows"] == source.nearest(rows, reading)]
    return _by_seed(at, source.metric, reading)


def _oracle(source: Source, rows: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Read scores with states as fitted or optimised.

    Where plain scores differ from those of `lengths`, the datasets were others. They get other
    names then, so that they are not paired with those of `lengths`.
    """
    at = source.nearest(rows, reading)
    rows = rows[rows["num_rows"] == at]
    plain, oracle = (
        _by_seed(rows[rows["reading"] == name], source.metric, reading)
        for name in ("plain", reading.variant)
    )
    lengths = source.measured.frame("lengths")
    beside = lengths[(lengths["arm"] == reading.arm) & (lengths["num_rows"] == at)]
    if len(beside):
        scores = _by_seed(beside, source.metric, reading)
        seeds = plain.columns.intersection(scores.columns)
        difference = (plain[seeds] - scores.reindex(plain.index)[seeds]).abs().to_numpy()
        if seeds.empty or not np.all(difference <= SAME_SCORE):
            oracle.index = [f"oracle {name}" for name in oracle.index]
    return oracle


def _states(source: Source, rows: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Read scores with states that were computed in another way than by one pass."""
    rows = rows[rows["reading"] == reading.variant]
    if rows.empty:
        raise Missing(f"{reading.arm} ({reading.variant.replace('_', ' ')})")
    return _scores(source, rows, reading)


def _decay(source: Source, rows: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    constant = source.trained_rows // 4
    rows = rows[rows["constant"] == constant]
    if rows.empty:
        raise Missing(f"{reading.arm} (decay at evaluation with constant {constant})")
    return _scores(source, rows, reading)


def _look(source: Source, rows: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    name, part = LOOKS[reading.variant]
    rows = rows[rows["quantity"] == name]
    if rows.empty:
        raise Missing(f"{reading.arm} ({name.replace('_', ' ')})")
    layers = np.sort(rows["layer"].unique())
    third = max(1, len(layers) // 3)
    layers = {"all": layers, "early": layers[:third], "deep": layers[-third:]}[part]
    rows = rows[rows["layer"].isin(layers)]
    at = _bin(source, rows, reading) if name == "write_rate" else source.nearest(rows, reading)
    rows = rows[rows["num_rows"] == at].rename(columns={"task": "dataset"})
    return _by_seed(rows, "value", reading)


def _bin(source: Source, rows: pd.DataFrame, reading: Reading) -> int:
    """Return the last position of the bin that contains the place of a reading."""
    wanted = float(reading.place) * source.trained_rows
    ends = np.sort(rows["num_rows"].unique())
    after = ends[ends >= wanted / NEAR]
    if not len(after):
        raise Missing(f"{reading.arm} (write rate at {wanted:,.0f} rows)")
    return int(after[after >= wanted][0] if (after >= wanted).any() else after[-1])


def _cost(source: Source, rows: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Read the logarithms of a cost, or their slopes from one number of rows to the next."""
    column, slope = COSTS[reading.variant]
    shortest = LONG * source.trained_rows / NEAR
    rows = rows[rows["num_rows"] >= shortest].rename(columns={"num_rows": "dataset"})
    if rows.empty:
        raise Missing(f"{reading.arm} (cost at {shortest:,.0f} rows and more)")
    logs = np.log(_by_seed(rows.astype({column: float}), column, reading))
    if not slope:
        return logs
    steps = np.diff(np.log(logs.index.to_numpy(float)))
    return logs.diff().iloc[1:].div(steps, axis="index")


def _by_seed(rows: pd.DataFrame, column: str, reading: Reading) -> pd.DataFrame:
    if rows.empty:
        raise Missing(f"{reading.arm} ({reading.measure} at {reading.place})")
    return rows.pivot_table(index="dataset", columns="seed", values=column, aggfunc="mean")


LOOKS = {
    "write_rate": ("write_rate", "all"),
    "write_rate_deep": ("write_rate", "deep"),
    "cosine": ("cosine_drift", "all"),
    "cosine_early": ("cosine_drift", "early"),
    "cosine_deep": ("cosine_drift", "deep"),
}
"""For each variant, the quantity of `looks` and the layers that are averaged."""
STATES = ("once", "trajectory", "orders", "second_pass", "second_pass_trajectory")
"""Variants that read `states`."""
COSTS = {
    "fit_exponent": ("fit_seconds", True),
    "predict_exponent": ("predict_seconds", True),
    "state_exponent": ("state_bytes", True),
    "log_fit_seconds": ("fit_seconds", False),
}
"""For each variant, the column of `cost` and whether its slope is read."""
Read = Callable[[Source, pd.DataFrame, Reading], pd.DataFrame]
MEASURE_OF: Mapping[str, tuple[str, Read]] = {
    "": ("lengths", _scores),
    "blocks": ("blocks", _scores),
    "plain": ("oracle", _oracle),
    "oracle": ("oracle", _oracle),
    "decay_at_evaluation": ("decay_at_evaluation", _decay),
    **{name: ("states", _states) for name in STATES},
    **{name: ("looks", _look) for name in LOOKS},
    **{name: (COST, _cost) for name in COSTS},
}
"""For each variant, its measure and the function that reads it."""

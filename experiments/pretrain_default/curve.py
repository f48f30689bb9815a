"""Draw scores against hours of training, and extrapolate them.

    python -m experiments.pretrain_default.curve runs/default

Every leg with a decay is a point: the scores of its weights against their core-hours, trunk and
decay. A power law a - b h^-c is fitted to each score by least squares and extrapolated to ten times
the hours; the errors are those of the fit, assuming that the law holds.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import curve_fit

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from experiments.pretrain_default import legs
from tabicl_linear.errors import DataError
from tabicl_linear.files import written_whole

SCORES = {
    "development_roc_auc": "ROC-AUC on development tables",
    "loss": "loss on synthetic tables",
}
LIMITS = {"development_roc_auc": (-np.inf, 1.0), "loss": (0.0, np.inf)}
"""Values that a score can take, between which the limit of its law must lie."""
FEWEST_POINTS = 4
MULTIPLES = (2, 5, 10)
"""Multiples of the hours so far at which the law is evaluated."""
EXPONENTS = (0.01, 4.0)

Array = npt.NDArray[np.float64]


class PowerLaw(NamedTuple):
    """a - b h^-c with the covariance of a, b and c."""

    a: float
    b: float
    c: float
    covariance: Array

    def formula(self, exponent: str = "h^-{:.2f}") -> str:
        """The law with its numbers, optionally with another notation of the exponent."""
        sign = "-" if self.b >= 0 else "+"
        return f"{self.a:.4f} {sign} {abs(self.b):.4f} " + exponent.format(self.c)

    def at(self, hours: Array) -> Array:
        """The score after the given core-hours."""
        return _power_law(hours, self.a, self.b, self.c)

    def error(self, hours: Array) -> Array:
        """Standard error of the score, to first order in the errors of the parameters."""
        power = hours**-self.c
        slopes = np.stack([np.ones_like(hours), -power, self.b * np.log(hours) * power])
        variance: Array = np.einsum("ih,ij,jh->h", slopes, self.covariance, slopes)
        return np.sqrt(variance)


def fit(hours: Array, scores: Array, limits: tuple[float, float] = (-np.inf, np.inf)) -> PowerLaw:
    """Fit a power law to scores.

    Args:
        hours: Core-hours of the legs.
        scores: Their scores.
        limits: The least and the largest limit (for infinitely many hours) that the score can have.

    Raises:
        DataError: There are fewer than 4 different hours.
    """
    if len(np.unique(hours)) < FEWEST_POINTS:
        raise DataError(
            f"{len(np.unique(hours))} points: a curve needs at least {FEWEST_POINTS} legs with "
            "scores; train more."
        )
    # Start from a law that halves the distance to the limit each time the hours quadruple.
    last, span = scores[hours.argmax()], scores[hours.argmax()] - scores[hours.argmin()]
    start = (np.clip(last + span / 2, *limits), span * np.sqrt(hours.min()), 0.5)
    bounds = ([limits[0], -np.inf, EXPONENTS[0]], [limits[1], np.inf, EXPONENTS[1]])
    (a, b, c), covariance = curve_fit(
        _power_law, hours, scores, p0=start, bounds=bounds, max_nfev=10_000
    )
    return PowerLaw(float(a), float(b), float(c), covariance)


def points(log: pd.DataFrame, score: str) -> tuple[Array, Array]:
    """Core-hours and scores of the legs that have them."""
    measured = log.dropna(subset=[score])
    return measured["core_hours"].to_numpy(float), measured[score].to_numpy(float)


def describe(name: str, law: PowerLaw, hours: Array) -> str:
    """The law and its predictions, one line for each multiple of the hours."""
    ahead = hours.max() * np.array(MULTIPLES)
    lines = [f"{name}: {law.formula()} over {len(hours)} legs"]
    lines += [
        f"  {h:8.1f} core-hours  {value:.4f} +- {error:.4f}"
        for h, value, error in zip(ahead, law.at(ahead), law.error(ahead), strict=True)
    ]
    return "\n".join(lines)


def draw(log: pd.DataFrame, laws: dict[str, PowerLaw], output: Path) -> None:
    """A panel for each score that has a law: legs, law and its standard error."""
    figure, axes = plt.subplots(
        1, len(laws), figsize=(4.5 * len(laws), 3.4), constrained_layout=True, squeeze=False
    )
    for axis, (score, law) in zip(axes[0], laws.items(), strict=True):
        hours, scores = points(log, score)
        grid = np.geomspace(hours.min(), MULTIPLES[-1] * hours.max(), 200)
        value, error = law.at(grid), law.error(grid)
        axis.plot(hours, scores, "o", color="C1", label="legs")
        axis.plot(grid, value, color="C0", label=law.formula("h$^{{-{:.2f}}}$"))
        axis.fill_between(grid, value - error, value + error, color="C0", alpha=0.15, linewidth=0)
        axis.set(xscale="log", xlabel="core-hours", title=SCORES[score])
        # Errors of extrapolations may be huge; the points must stay visible.
        axis.set_ylim(*_limits(np.append(scores, value)))
        axis.legend(frameon=False)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    with written_whole(output) as partial:
        figure.savefig(partial, dpi=130, format="png")
    plt.close(figure)


def _limits(values: Array) -> tuple[float, float]:
    margin = 0.1 * max(float(np.ptp(values)), 1e-4)
    return float(values.min()) - margin, float(values.max()) + margin


def _power_law(hours: Array, a: float, b: float, c: float) -> Array:
    law: Array = a - b * hours**-c
    return law


def main(argv: list[str] | None = None) -> int:
    """Draw and print the curve; return 2 if there are too few legs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", default=Path("runs/default"))
    parser.add_argument("--output", type=Path, default=Path("docs/images/default_curve.png"))
    arguments = parser.parse_args(argv)
    try:
        log = legs.read(arguments.run / legs.LOG)
        # Without development tables there is only the synthetic loss.
        scores = [score for score in SCORES if log[score].notna().any()] or list(SCORES)
        laws = {score: fit(*points(log, score), LIMITS[score]) for score in scores}
    except (DataError, RuntimeError) as error:  # the solver's own, where it does not converge
        sys.stderr.write(f"{error}\n")
        return 2
    draw(log, laws, arguments.output)
    for score, law in laws.items():
        print(describe(SCORES[score], law, points(log, score)[0]))
    print(f"figure  {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

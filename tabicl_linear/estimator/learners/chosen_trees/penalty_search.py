"""The penalty of ridge regressions, chosen by rows that their solutions have not seen."""

from tabicl_linear.estimator.learners.chosen_trees.evidence import OutOfFold
from tabicl_linear.estimator.learners.chosen_trees.solving import Regression, Solution, Trial
from tabicl_linear.types import Tensor

PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""To choose from, in units of the variance of a row's features.

Contexts of more than `FEW_ROWS` try every second on their first division, from the largest down
until it gets worse, and on all of them the best and a quarter of it: the mean of solutions varies
less than one, and wants less."""


class PenaltySearch:
    """The search of a penalty, with the solutions of all divisions so far.

    Args:
        deviation: Standard deviation of each kind of fixed features.
        targets: Labels of the rows left out, one-hot.
        num_solutions: Divisions in all.
    """

    def __init__(self, deviation: float, targets: Tensor, num_solutions: int) -> None:
        self._deviation, self._targets, self._num_solutions = deviation, targets, num_solutions
        self._tries = dict[float, tuple[list[Trial], OutOfFold]]()

    def start(self, regression: Regression, places: Tensor, *, narrow: bool) -> None:
        """Solve the first division.

        Args:
            regression: Of the division.
            places: Places in the sample of the rows that it leaves out.
            narrow: Whether to go on with two penalties only.
        """
        for penalty in PENALTIES[::-2] if narrow else PENALTIES:
            self._try(penalty, regression, places)
            if narrow and self._best() != penalty:
                break
        if narrow:
            best = self._best()
            self._tries = {best: self._tries[best]}
            self._try(best / 4, regression, places)

    def add(self, regression: Regression, places: Tensor) -> None:
        """Solve another division."""
        for penalty in self._tries:
            self._try(penalty, regression, places)

    def best(self) -> tuple[list[Solution], OutOfFold]:
        """The solutions with the best penalty, and what they say of rows left out."""
        trials, out_of_fold = self._tries[self._best()]
        return [trial.solution() for trial in trials], out_of_fold

    def _try(self, penalty: float, regression: Regression, places: Tensor) -> None:
        nothing = list[Trial](), OutOfFold.empty(self._targets)
        trials, out_of_fold = self._tries.setdefault(penalty, nothing)
        trials.append(regression.solve(penalty, self._deviation))
        out_of_fold.add_(places, trials[-1].left_out)

    def _best(self) -> float:
        tries, targets, count = self._tries, self._targets, self._num_solutions
        return min(tries, key=lambda penalty: tries[penalty][1].squared_error(targets, count))

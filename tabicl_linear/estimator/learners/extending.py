"""Learners to whose states rows can be added."""

from typing import Any

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import ChosenTrees
from tabicl_linear.estimator.learners.chosen_trees.divisions import rows_that_grow
from tabicl_linear.estimator.learners.interface import ContextLearner
from tabicl_linear.model import InContextModel


def grows(learner: ContextLearner[Any]) -> bool:
    """Whether rows can be added to the states of a learner."""
    if isinstance(learner, ChosenTrees):
        return learner.grows
    return isinstance(learner, InContextModel) and learner.is_causal


def rows_held(learner: ContextLearner[Any]) -> int:
    """So many first rows teach the columns of a table to which rows are added, and are held.

    0 where the first piece does.
    """
    return rows_that_grow() if isinstance(learner, ChosenTrees) else 0


def extensible(learner: ContextLearner[Any]) -> InContextModel | ChosenTrees:
    """The learner as one to whose states rows can be added.

    Raises:
        UnsupportedReadout: It is none; the message says why.
    """
    if isinstance(learner, ChosenTrees):
        if learner.grows:
            return learner
        raise UnsupportedReadout(
            "Trees that `fit` has chosen keep their coefficients alone: begin with `partial_fit` "
            "on a new classifier to add rows later."
        )
    if not isinstance(learner, InContextModel):
        raise UnsupportedReadout(
            f"A {type(learner).__name__} cannot be extended by more rows: fit all rows at once, or "
            "use a model whose layers read causally (tabicl_linear.readouts.Causal) and that takes "
            "all classes, with long_context='full'."
        )
    learner.check_extensible()
    return learner

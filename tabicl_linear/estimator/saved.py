"""How fitted classifiers are kept: as a file of their own, and by pickle."""

import os
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tabicl_linear.estimator import state_file
from tabicl_linear.estimator.ensemble import FittedEnsemble


class SavedEnsemble(BaseEstimator):
    """Adds `save` to a classifier; subclasses add `load`, which knows how to find their model."""

    ensemble_: FittedEnsemble[Any]

    @property
    def state_nbytes_(self) -> int:
        """Bytes of the fitted states of all members."""
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.nbytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier to one file, from which `load` makes it again.

        It holds the states and what was learnt about columns and classes, and no training row. Its
        size does not depend on the number of rows (except with softmax attention). A model is named
        and identified, but not stored. See docs/growing.md.

        Raises:
            NotFittedError: The classifier has not been fitted.
            DataError: The file cannot be written, or an argument of the constructor cannot be
                stored.
        """
        check_is_fitted(self, "ensemble_")
        state_file.write(self, Path(path))

    @classmethod
    def _restored(cls, content: state_file.Content, **arguments: Any) -> Self:
        """A classifier as a file describes it, with some arguments of the constructor replaced."""
        classifier = cls(**{**content.parameters, **arguments})
        classifier.__dict__.update(content.fitted)
        return classifier

    def __sklearn_is_fitted__(self) -> bool:
        return "ensemble_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        # A classifier fitted on a GPU must load on a machine without one.
        state = dict(super().__getstate__())
        if "ensemble_" in state:
            state["ensemble_"] = state["ensemble_"].on("cpu")
        return state

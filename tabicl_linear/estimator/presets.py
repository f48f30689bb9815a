"""Ensembles by name."""

from typing import Literal, NamedTuple

EnsembleName = Literal["default", "paper"]


class Preset(NamedTuple):
    """An ensemble: what `None` stands for in the arguments of a classifier.

    In both, members combine class and column shifts, write the rows in their own order, and every
    second one sees power-transformed columns (`tabicl_linear.estimator.members.views`).

    Attributes:
        n_estimators: Members.
        softmax_temperature: Divides the logits.
    """

    n_estimators: int
    softmax_temperature: float


PRESETS: dict[EnsembleName, Preset] = {
    "default": Preset(n_estimators=8, softmax_temperature=0.9),
    # The authors' evaluation of real tables (`pfns/evaluation/real_world_presets.py`).
    "paper": Preset(n_estimators=10, softmax_temperature=0.8),
}

"""Learners made of a pretrained model: the model itself, or `ManyClasses` of it."""

import copy
import os
from dataclasses import dataclass

from tabicl_linear.checkpoint import load_model
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.estimator.learners.interface import ContextLearner, Learners
from tabicl_linear.estimator.learners.many_classes import ManyClasses
from tabicl_linear.model import InContextModel
from tabicl_linear.shipped import WEIGHTS, checkpoint_path


@dataclass(frozen=True)
class PretrainedLearners(Learners):
    """Learners made of one model, for tables with any number of classes."""

    model: InContextModel

    @property
    def is_causal(self) -> bool:
        """Whether rows can be added to states."""
        return self.model.is_causal

    def for_table(self, num_classes: int, num_rows: int, *, grows: bool = False) -> ContextLearner:
        """The model, or `ManyClasses` of it where it takes fewer classes."""
        limit = self.model.architecture.num_classes
        if num_classes > limit:
            return ManyClasses(self.model, num_classes=num_classes, max_classes=limit)
        return self.model


def load(model: str | os.PathLike[str] | InContextModel) -> InContextModel:
    """The model that an argument names: "default", "streaming", a path, or a model (copied).

    Raises:
        ConfigError: It is none of these.
        CheckpointError: The file is missing or cannot be read.
    """
    if isinstance(model, InContextModel):
        return copy.deepcopy(model).eval()
    if not isinstance(model, str | os.PathLike):
        raise ConfigError(
            f"model={model!r}: give 'default', 'streaming', a path or an InContextModel."
        )
    path = checkpoint_path(model)
    if model in WEIGHTS and not path.is_file():
        raise CheckpointError(
            f"model={model!r}: this installation carries no weights; pretrain a model "
            "with `make demo` or `tabicl-linear fit`, and pass model=PATH to its last.ckpt or "
            "export."
        )
    if not path.exists():
        raise CheckpointError(
            f"model={str(path)!r}: there is no such file; give {' or '.join(map(repr, WEIGHTS))}, "
            "weights of the package, or the path of a checkpoint or an export."
        )
    return load_model(path).eval()


def longest_context(learner: ContextLearner, long_context: str) -> int:
    """Number of rows of the longest table that a learner's model was pretrained on.

    Raises:
        ConfigError: The model's file does not say; the message names the `long_context` asked for.
    """
    model = learner.learner if isinstance(learner, ManyClasses) else learner
    assert isinstance(model, InContextModel)
    if model.longest_context is None:
        raise ConfigError(
            f"long_context={long_context!r}: the model's file does not say how many rows "
            "it was pretrained on; give 'full', or a checkpoint of `tabicl-linear fit`."
        )
    return model.longest_context

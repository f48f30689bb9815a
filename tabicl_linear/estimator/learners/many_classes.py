"""Splits a problem of more classes than a learner takes into smaller ones, and joins the answers.

Every class gets a code word of a few digits, and the learner predicts one digit at a time, each
from all rows. The digits are those of the class's number in some order of the classes. Two orders
correct each other's errors, as in Dietterich and Bakiri (1995), "Solving multiclass learning
problems via error-correcting output codes", but with probabilities of digits instead of values.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator.learners.interface import ComposedLearner, ContextLearner
from tabicl_linear.types import Float, Int, Tensor

NUM_ORDERS = 2
"""Orders of the classes; each takes as many fits as a code word has digits."""


class DigitStates(NamedTuple):
    """The learner's state for each digit, in the order of the rows of `ManyClasses.code`."""

    digits: tuple[Any, ...]


class Problem(NamedTuple):
    """A problem that a learner was fitted to: the classes of a table, or one digit of their code.

    `y` are the labels that the learner was given, of each row of each member.
    """

    learner: Any
    state: Any
    y: Int[Tensor, "b c"]


class ManyClasses(ComposedLearner):
    """A learner of any number of classes, made of one that takes few and predicts single digits.

    Attributes:
        code: Digit of each class in each sub-problem, `[sub-problems, classes]`. Any two classes
            differ in some digit of every order, and every value below the largest occurs.

    Raises:
        ConfigError: The learner takes fewer than two classes.
    """

    def __init__(self, learner: ContextLearner, *, num_classes: int, max_classes: int) -> None:
        if max_classes < 2:
            raise ConfigError(
                f"max_classes={max_classes}: a learner must take at least 2 classes; give another "
                "model."
            )
        super().__init__(learner)
        self.code = digit_code(num_classes, max_classes)

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        spill: Path | None = None,
        **options: Any,
    ) -> DigitStates:
        """The states after labelled rows, one for each digit; see `ContextLearner.fit`.

        Tables larger than memory, which come with a folder to spill into, are refused.
        """
        if spill is not None:
            classes, most = self.code.shape[1], int(self.code.max()) + 1
            raise DataError(
                f"A table larger than memory has {classes} classes and the model takes {most}: "
                "join classes, or give fewer rows, which may have any number of classes."
            )
        digits = (values.to(y.device)[y] for values in self.code)
        return DigitStates(tuple(self.learner.fit(x, digit, **options) for digit in digits))

    def predict(self, state: DigitStates, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        """Log-probabilities of the classes, up to a constant in each row."""
        total = torch.zeros((), device=x.device)
        for values, digit in zip(self.code, state.digits, strict=True):
            logits = self.learner.predict(digit, x)[..., : int(values.max()) + 1]
            total = total + logits.log_softmax(-1)[..., values.to(x.device)]
        # Within an order, the log-probability of a class is the sum over the digits of its word.
        # Over the orders, the sum would be right if they erred independently, and the mean if they
        # erred alike; on synthetic tables of 26 classes a factor between has the least log-loss.
        return total / NUM_ORDERS**0.5


def digit_code(num_classes: int, max_values: int) -> Int[Tensor, "p c"]:
    """Digits of all classes (c) in all sub-problems (p), with the last digits of an order first.

    The first digit of a word takes as few values as are needed, and all others `max_values`: this
    merges few classes into each value, and is more accurate than digits with equally many values.
    """
    rng = np.random.default_rng(num_classes)
    rows = []
    for order in range(NUM_ORDERS):
        number = np.arange(num_classes) if order == 0 else rng.permutation(num_classes)
        while number.max() > 0:
            number, digit = np.divmod(number, max_values)
            rows.append(digit)
    return torch.from_numpy(np.stack(rows))


def problems(learner: ContextLearner, state: Any, y: Int[Tensor, "b c"]) -> list[Problem]:
    """The problem of all classes, or one for each digit, for rows with class indices `y`."""
    if not isinstance(learner, ManyClasses):
        return [Problem(learner, state, y)]
    pairs = zip(state.digits, learner.code, strict=True)
    return [Problem(learner.learner, digit, values.to(y.device)[y]) for digit, values in pairs]


def rejoined(learner: ContextLearner, states: Sequence[Any]) -> Any:
    """The state of a learner, put together from the states of its `problems`."""
    return DigitStates(tuple(states)) if isinstance(learner, ManyClasses) else states[0]

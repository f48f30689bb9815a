"""More classes than a learner takes: several smaller problems, and their answers put together.

Every class gets a code word of a few digits, and the learner predicts one digit at a time, each
from all rows. The digits are those of the class's number in some order of the classes; two orders
correct each other's errors, as in Dietterich and Bakiri (1995), "Solving multiclass learning
problems via error-correcting output codes", with probabilities of digits in place of their values.
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
"""Orders of the classes; each costs as many fits as a word has digits."""


class DigitStates(NamedTuple):
    """What the learner has read of each digit, in the order of the code's rows."""

    digits: tuple[Any, ...]


class Problem(NamedTuple):
    """What a learner has been asked: the classes of a table, or one digit of many classes.

    `y` are the labels that it was told, of each row of each member.
    """

    learner: Any
    state: Any
    y: Int[Tensor, "b c"]


class ManyClasses(ComposedLearner):
    """A learner of any number of classes, from one that takes few and predicts single digits.

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

        Tables larger than memory, which would need the folder to spill into, are refused.
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
        # An order makes a class as probable as all digits of its word together. If orders erred
        # independently their evidence would add up, if they erred alike their mean would be right;
        # on synthetic tables of 26 classes the factor between the two has the least log-loss.
        return total / NUM_ORDERS**0.5


def digit_code(num_classes: int, max_values: int) -> Int[Tensor, "p c"]:
    """Digits of all classes in all orders, the last digits of an order first.

    All digits but the first take `max_values` values and the first as few as are needed: merging
    few classes in each value is more accurate than digits with equally many values.
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
    """The problem of all classes, or those of the digits, of rows with class indices `y`."""
    if not isinstance(learner, ManyClasses):
        return [Problem(learner, state, y)]
    pairs = zip(state.digits, learner.code, strict=True)
    return [Problem(learner.learner, digit, values.to(y.device)[y]) for digit, values in pairs]


def rejoined(learner: ContextLearner, states: Sequence[Any]) -> Any:
    """The state of a learner from those of its `problems`."""
    return DigitStates(tuple(states)) if isinstance(learner, ManyClasses) else states[0]

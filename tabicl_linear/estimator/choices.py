"""Decisions made on held-out rows: pure functions of their logits and labels."""

from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.optimize import minimize_scalar

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.arrays import BoolArray, FloatArray, IntArray
from tabicl_linear.estimator.members.pooling import log_losses

LongContextMode = Literal["full", "blocks", "auto"]
MODES: tuple[LongContextMode, ...] = get_args(LongContextMode)
MAX_BLOCKS = 32
"""Maximum number of blocks. Each has its own states, so memory and prediction time grow with it."""
STANDARD_ERRORS = 2.0
"""Blocks must be better by this many standard errors of the mean difference: less is noise."""
PRIOR_DEVIATION = 0.5
"""Standard deviation of the Gaussian prior of a calibrated temperature's logarithm; its mean is
that of the fixed temperature, so a few rows change the temperature only a little."""
TEMPERATURES = (0.05, 20.0)
"""Range of calibrated temperatures."""
HELD_OUT_FRACTION = 0.2
MAX_HELD_OUT = 2000
"""Rows that are held out by default, for example to calibrate a temperature: a fifth of the table,
at most 2,000."""


class LongContext(NamedTuple):
    """Whether a table was read as one context or in blocks, and the log-losses that decided.

    Attributes:
        num_blocks: Contexts that the rows were divided into.
        held_out_rows: Rows that the two were compared on; 0 if nothing had to be compared.
        full_log_loss: Mean log-loss (nats) on these rows after reading all others as one context.
        blocks_log_loss: The same after reading all others in blocks.
        standard_error: Standard error of the mean difference between the two.
    """

    num_blocks: int
    held_out_rows: int = 0
    full_log_loss: float | None = None
    blocks_log_loss: float | None = None
    standard_error: float | None = None

    @property
    def choice(self) -> Literal["full", "blocks"]:
        """Whether the table was read as one context ("full") or in blocks."""
        return "blocks" if self.num_blocks > 1 else "full"


FULL = LongContext(1)


def check_blocks(num_blocks: int, num_rows: int, longest: int) -> None:
    """Raise `DataError` if a table needs more than `MAX_BLOCKS` blocks.

    `longest` is the number of rows of the longest table that the model was pretrained on.
    """
    if num_blocks > MAX_BLOCKS:
        raise DataError(
            f"long_context='blocks' would need {num_blocks} blocks for {num_rows} rows, as the "
            f"model was pretrained on at most {longest}, and each member would hold as many "
            f"states (at most {MAX_BLOCKS}): give at most {MAX_BLOCKS * longest} rows, or "
            "long_context='full'."
        )


def better_context(full: FloatArray, blocks: FloatArray, num_blocks: int) -> LongContext:
    """Choose blocks if they predict held-out rows better than one context, beyond noise.

    Args:
        full: Log-losses `[rows]` of the held-out rows after reading the others as one context, at a
            temperature that was not fitted to them.
        blocks: The same after reading the others in blocks.
        num_blocks: How many blocks all rows of the table would need.
    """
    gains = full - blocks
    error = float(gains.std(ddof=1) / np.sqrt(len(gains)))
    is_better = gains.mean() > STANDARD_ERRORS * error
    return LongContext(
        num_blocks if is_better else 1,
        held_out_rows=len(gains),
        full_log_loss=float(full.mean()),
        blocks_log_loss=float(blocks.mean()),
        standard_error=error,
    )


def calibrated_temperature(
    member_logits: FloatArray, labels: IntArray, *, fixed: float, average_logits: bool
) -> float:
    """The most probable temperature on rows that the members have not read.

    Its logarithm has a Gaussian prior around that of `fixed`. Where the search finds nothing better
    it is `fixed` itself, so the log-loss on these rows never gets worse. `member_logits` are
    `[members, rows, classes]`, and `labels` are class indices.
    """

    def loss(log_temperature: float) -> float:
        temperature = float(np.exp(log_temperature))
        losses = log_losses(
            member_logits, labels, temperature=temperature, average_logits=average_logits
        )
        distance = (log_temperature - np.log(fixed)) / PRIOR_DEVIATION
        return float(losses.mean() + distance**2 / (2 * len(labels)))

    minimum = minimize_scalar(loss, bounds=np.log(TEMPERATURES), method="bounded")
    return float(np.exp(minimum.x)) if minimum.fun < loss(np.log(fixed)) else fixed


def held_out_rows(
    labels: IntArray, seed: int, *, fraction: float = HELD_OUT_FRACTION, most: int = MAX_HELD_OUT
) -> BoolArray:
    """Which rows to hold out: a random `fraction` of the table, at most `most` of them.

    `labels` are class indices. At least one row of every class is not held out.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    first_of_class = np.zeros(len(labels), dtype=bool)
    first_of_class[order[np.unique(labels[order], return_index=True)[1]]] = True
    count = min(int(fraction * len(labels)), most)
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[order[~first_of_class[order]][:count]] = True
    return held_out

"""Tables of more rows than the model was pretrained on: read as one context, or in blocks."""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator.context_blocks import ContextBlocks
from tabicl_linear.estimator.growing import GrowingClassifier
from tabicl_linear.estimator.learner import ContextLearner
from tabicl_linear.estimator.many_classes import ManyClasses
from tabicl_linear.estimator.pooling import held_out_rows, log_losses
from tabicl_linear.estimator.preprocessing import Table
from tabicl_linear.model import InContextModel

LongContextMode = Literal["full", "blocks", "auto"]
MODES = ("full", "blocks", "auto")
MAX_BLOCKS = 32
"""Each block has states of its own, so memory and the time to predict grow with their number."""
HELD_OUT_FRACTION = 0.1
MAX_HELD_OUT = 1000
"""Rows that "auto" compares on: this fraction of the table, and at most so many."""
STANDARD_ERRORS = 2.0
"""Blocks must be better by so many standard errors of the mean difference: less is noise."""


class LongContext(NamedTuple):
    """How a table was read, and why.

    Attributes:
        choice: "full", or "blocks".
        num_blocks: Contexts that the rows were divided into; 1 for "full".
        held_out_rows: Rows that both were compared on; 0 where nothing had to be compared.
        full_log_loss: Mean log-loss on these rows of a fit on all others as one context, in nats.
        blocks_log_loss: The same for blocks.
        standard_error: Of the mean difference of the two over the rows.
    """

    choice: Literal["full", "blocks"]
    num_blocks: int
    held_out_rows: int = 0
    full_log_loss: float | None = None
    blocks_log_loss: float | None = None
    standard_error: float | None = None


FULL = LongContext("full", 1)


class LongContextClassifier(GrowingClassifier):
    """Adds the choice between one long context and several short ones.

    Attributes:
        long_context_: What was chosen, with the evidence.
    """

    long_context: LongContextMode
    long_context_: LongContext

    def _check_arguments(self) -> None:
        super()._check_arguments()
        if self.long_context not in MODES:
            raise ConfigError(
                f"long_context={self.long_context!r}: give one of {', '.join(MODES)}."
            )

    def _start(self, X: Any, y: Any, announced: Any) -> None:
        if self.long_context != "full":
            raise ConfigError(
                f"long_context={self.long_context!r} needs all rows at once: give 'full' to fit "
                "piece by piece."
            )
        super()._start(X, y, announced)
        self.long_context_ = FULL

    def _suited(
        self,
        learner: ContextLearner[Any],
        codes: npt.NDArray[np.int64],
        table: Table | None,
        seed: int,
    ) -> ContextLearner[Any]:
        self.long_context_ = self._choice(learner, codes, table, seed)
        num_blocks = self.long_context_.num_blocks
        return learner if num_blocks == 1 else ContextBlocks(learner, num_blocks)

    def _choice(
        self,
        learner: ContextLearner[Any],
        codes: npt.NDArray[np.int64],
        table: Table | None,
        seed: int,
    ) -> LongContext:
        if self.long_context == "full":
            return FULL
        longest = self._longest_context(learner)
        num_blocks = math.ceil(len(codes) / longest)
        if self.long_context == "blocks":
            _check_blocks(num_blocks, len(codes), longest)
            return LongContext("blocks" if num_blocks > 1 else "full", num_blocks)
        if not 1 < num_blocks <= MAX_BLOCKS:
            return FULL
        if table is None:
            raise ConfigError(
                "long_context='auto' needs all rows at once: give 'full' or 'blocks' to fit on "
                "a table that is read in pieces."
            )
        held_out = held_out_rows(codes, seed, fraction=HELD_OUT_FRACTION, most=MAX_HELD_OUT)
        fewer = math.ceil(np.count_nonzero(~held_out) / longest)
        if fewer == 1:  # the rest is no long table
            return FULL
        one, several = (
            self._held_out_logits(each, table, codes, held_out, seed)
            for each in (learner, ContextBlocks(learner, fewer))
        )
        if one is None or several is None:
            return FULL
        losses = [self._losses(logits, codes[held_out]) for logits in (one, several)]
        gains = losses[0] - losses[1]
        error = float(gains.std(ddof=1) / np.sqrt(len(gains)))
        is_better = gains.mean() > STANDARD_ERRORS * error
        return LongContext(
            "blocks" if is_better else "full",
            num_blocks if is_better else 1,
            held_out_rows=len(gains),
            full_log_loss=float(losses[0].mean()),
            blocks_log_loss=float(losses[1].mean()),
            standard_error=error,
        )

    def _losses(
        self, member_logits: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Log-losses of rows, in nats, at the temperature that does not depend on the rows."""
        return log_losses(
            member_logits,
            labels,
            temperature=self._preset.softmax_temperature,
            average_logits=self.average_logits,
        )

    def _longest_context(self, learner: ContextLearner[Any]) -> int:
        """Rows of the longest table that the model was pretrained on."""
        model = learner.learner if isinstance(learner, ManyClasses) else learner
        assert isinstance(model, InContextModel)
        trained = model.provenance.get("trained_rows")
        if trained is None:
            raise ConfigError(
                f"long_context={self.long_context!r}: the model's file does not say how many rows "
                "it was pretrained on; give 'full', or a checkpoint of `tabicl-linear fit`."
            )
        return int(trained[1])


def _check_blocks(num_blocks: int, num_rows: int, longest: int) -> None:
    if num_blocks > MAX_BLOCKS:
        raise DataError(
            f"long_context='blocks' would need {num_blocks} blocks for {num_rows} rows, as the "
            f"model was pretrained on at most {longest}, and each member would hold as many "
            f"states (at most {MAX_BLOCKS}): give at most {MAX_BLOCKS * longest} rows, or "
            "long_context='full'."
        )

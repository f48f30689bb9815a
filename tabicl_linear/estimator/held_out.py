"""Evidence of rows that are held out from a first fit: a temperature, and one context or blocks."""

import math
from dataclasses import dataclass

import numpy as np

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator import choices
from tabicl_linear.estimator.arrays import BoolArray, FloatArray
from tabicl_linear.estimator.choices import FULL, LongContext, held_out_rows
from tabicl_linear.estimator.learners.blocks import ContextBlocks
from tabicl_linear.estimator.learners.interface import ContextLearner
from tabicl_linear.estimator.learners.pretrained import longest_context
from tabicl_linear.estimator.members.ensemble import Encoded, fit_ensemble
from tabicl_linear.estimator.members.pooling import log_losses
from tabicl_linear.estimator.notices import silenced
from tabicl_linear.estimator.plan import Plan
from tabicl_linear.estimator.refinement import refined


@dataclass(frozen=True)
class Evidence:
    """Training rows, some of which are held out to judge fits on the others."""

    rows: Encoded
    plan: Plan

    def long_context(self, learner: ContextLearner) -> LongContext:
        """In how many contexts the learner is to read the rows.

        Raises:
            ConfigError: The file of the model does not say how many rows it was pretrained on, or
                evidence is asked for and the rows come in pieces.
            DataError: There would be too many blocks.
        """
        plan, codes = self.plan, self.rows.codes
        if plan.long_context == "full":
            return FULL
        longest = longest_context(learner, plan.long_context)
        num_blocks = math.ceil(len(codes) / longest)
        if plan.long_context == "blocks":
            choices.check_blocks(num_blocks, len(codes), longest)
            return LongContext(num_blocks)
        if not 1 < num_blocks <= choices.MAX_BLOCKS:
            return FULL
        if self.rows.table is None:
            raise ConfigError(
                "long_context='auto' needs all rows at once: give 'full' or 'blocks' to fit on "
                "a table that is read in pieces."
            )
        fraction, most = choices.COMPARED_FRACTION, choices.MAX_COMPARED
        held_out = held_out_rows(codes, plan.seed, fraction=fraction, most=most)
        fewer = math.ceil(np.count_nonzero(~held_out) / longest)
        if fewer == 1:  # without the rows held out, one context is long enough
            return FULL
        full = self._losses(learner, held_out)
        blocks = self._losses(ContextBlocks(learner, fewer), held_out)
        if full is None or blocks is None:
            return FULL
        return choices.better_context(full, blocks, num_blocks)

    def temperature(self, learner: ContextLearner) -> float:
        """The temperature, calibrated where the plan says so and rows can be spared."""
        fixed = self.plan.fixed_temperature
        if not self.plan.is_calibrated or self.rows.table is None:
            return fixed
        held_out = held_out_rows(self.rows.codes, self.plan.seed)
        logits = self._logits(learner, held_out) if held_out.any() else None
        if logits is None:
            return fixed
        return choices.calibrated_temperature(
            logits, self.rows.codes[held_out], fixed=fixed, average_logits=self.plan.average_logits
        )

    def _losses(self, learner: ContextLearner, held_out: BoolArray) -> FloatArray | None:
        """Log-losses of the rows held out, at the fixed temperature; None as `_logits`."""
        logits = self._logits(learner, held_out)
        if logits is None:
            return None
        labels, temperature = self.rows.codes[held_out], self.plan.fixed_temperature
        average = self.plan.average_logits
        return log_losses(logits, labels, temperature=temperature, average_logits=average)

    def _logits(self, learner: ContextLearner, held_out: BoolArray) -> FloatArray | None:
        """Logits `[members, rows, classes]` of the rows held out after a fit on the others.

        None if the others do not make a table, or not one that these rows fit into.
        """
        table = self.rows.table
        assert table is not None, "rows in pieces cannot be read twice"
        with silenced():
            try:
                columns = self.plan.new_columns(pairs=self.rows.columns.pairs)
                codes = self.rows.codes[~held_out]
                matrix = columns.fit_transform(table[~held_out], codes)
                # The last row of a class is never held out: there are as many.
                rows = Encoded(matrix, codes, columns, self.rows.classes)
                members = fit_ensemble(learner, rows, self.plan)
                if self.plan.refine:
                    members, _ = refined(members, rows, self.plan)
                queries = columns.transform(table[held_out])
            except DataError:  # where columns vary in the rows held out alone
                return None
        return members.scores(queries, lambda member_logits: member_logits, self.plan)

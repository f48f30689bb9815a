"""Decides on rows held out of a first fit: the temperature, and one context or blocks."""

import math

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

COMPARED_FRACTION = 0.1
MAX_COMPARED = 1000
"""Rows that one context and blocks are compared on: a tenth of the table, at most 1,000."""


def long_context(learner: ContextLearner, rows: Encoded, plan: Plan) -> LongContext:
    """Decide whether the learner reads the rows as one context or in blocks, as the plan says.

    Raises:
        ConfigError: The model's file does not say how many rows it was pretrained on, or the plan
            asks for a comparison ("auto") and the rows come in pieces.
        DataError: There would be too many blocks.
    """
    codes = rows.codes
    if plan.long_context == "full":
        return FULL
    longest = longest_context(learner, plan.long_context)
    num_blocks = math.ceil(len(codes) / longest)
    if plan.long_context == "blocks":
        choices.check_blocks(num_blocks, len(codes), longest)
        return LongContext(num_blocks)
    if not 1 < num_blocks <= choices.MAX_BLOCKS:
        return FULL
    if rows.table is None:
        raise ConfigError(
            "long_context='auto' needs all rows at once: give 'full' or 'blocks' to fit on "
            "a table that is read in pieces."
        )
    held_out = held_out_rows(codes, plan.seed, fraction=COMPARED_FRACTION, most=MAX_COMPARED)
    num_compared_blocks = math.ceil(np.count_nonzero(~held_out) / longest)
    if num_compared_blocks == 1:  # without the rows held out, one context is long enough
        return FULL
    labels, fixed, average = codes[held_out], plan.fixed_temperature, plan.average_logits
    losses = list[FloatArray]()
    for reader in (learner, ContextBlocks(learner, num_compared_blocks)):
        logits = _logits(reader, rows, plan, held_out)
        if logits is None:
            return FULL
        losses.append(log_losses(logits, labels, temperature=fixed, average_logits=average))
    full, blocks = losses
    return choices.better_context(full, blocks, num_blocks)


def temperature(learner: ContextLearner, rows: Encoded, plan: Plan) -> float:
    """The temperature: calibrated if the plan says so and rows can be held out, else fixed."""
    fixed = plan.fixed_temperature
    if not plan.is_calibrated or rows.table is None:
        return fixed
    held_out = held_out_rows(rows.codes, plan.seed)
    logits = _logits(learner, rows, plan, held_out) if held_out.any() else None
    if logits is None:
        return fixed
    return choices.calibrated_temperature(
        logits, rows.codes[held_out], fixed=fixed, average_logits=plan.average_logits
    )


def _logits(
    learner: ContextLearner, rows: Encoded, plan: Plan, held_out: BoolArray
) -> FloatArray | None:
    """Logits `[members, rows, classes]` of the held-out rows, after a fit on the others.

    None if the others cannot be fitted alone, or the held-out rows cannot be encoded as they are.
    """
    assert rows.table is not None, "rows in pieces cannot be read twice"
    with silenced():
        try:
            preprocessor = plan.new_preprocessor(pairs=rows.preprocessor.pairs)
            codes = rows.codes[~held_out]
            matrix = preprocessor.fit_transform(rows.table[~held_out], codes)
            # At least one row of every class is not held out, so the classes are the same.
            others = Encoded(matrix, codes, preprocessor, rows.classes)
            members = fit_ensemble(learner, others, plan)
            if plan.refine:
                members, _ = refined(members, others, plan)
            queries = preprocessor.transform(rows.table[held_out])
        except DataError:  # for example, columns vary in the held-out rows only
            return None
    return members.scores(queries, lambda member_logits: member_logits, plan)

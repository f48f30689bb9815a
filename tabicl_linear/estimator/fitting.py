"""Fits classifiers: learns columns from rows, and lets the members of an ensemble read them.

There is one recipe, `_fit_members`, for all sources of rows. The sources differ in how their rows
become numbers. In a table in memory, columns also learn class rates from the labels. In a table in
pieces, the first pieces teach the columns. Each piece is then read and let go where rows can be
added to what has been fitted; otherwise a temporary file holds the numbers of all rows. Callers set
torch up (`devices.computing`).
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.estimator import held_out
from tabicl_linear.estimator.arrays import Float32Array, FloatArray, IntArray
from tabicl_linear.estimator.class_weights import class_weights
from tabicl_linear.estimator.columns.category_names import warn_of_blanks
from tabicl_linear.estimator.columns.copies import warn_of_copies
from tabicl_linear.estimator.fitted import Fitted, FittedCompanion
from tabicl_linear.estimator.learners.blocks import ContextBlocks
from tabicl_linear.estimator.learners.chosen_trees.divisions import rows_that_grow
from tabicl_linear.estimator.learners.interface import ContextLearner, Learners
from tabicl_linear.estimator.members.ensemble import Encoded, extended_ensemble, fit_ensemble
from tabicl_linear.estimator.members.memory import stored
from tabicl_linear.estimator.notices import shown, silenced, warn_user
from tabicl_linear.estimator.plan import REFINED_AT_ONCE, Plan
from tabicl_linear.estimator.refinement import refined
from tabicl_linear.estimator.rows.labelled import Rows
from tabicl_linear.estimator.rows.labels import ANNOUNCE, as_objects, class_codes
from tabicl_linear.estimator.rows.pieces import (
    FIRST_ROWS,
    Pieces,
    first_rows,
    joined_labels,
    joined_rows,
)
from tabicl_linear.files import temporary_folder

IN_FIRST_ROWS = (
    f"of an iterator the first {FIRST_ROWS:,} rows name the classes; let a row of each be among "
    "them, or give the pieces to `partial_fit(X, y, classes=...)`"
)
"""The remedy that an error names if a class first occurs late in an iterator."""


def fit(rows: Rows, plan: Plan, learners: Learners) -> Fitted:
    """Fit on rows that are all in memory.

    Raises:
        DataError: There is one class only, more classes than a learner takes, or columns that
            cannot be encoded.
        ConfigError: The plan does not suit the rows or the model.
    """
    classes, codes = np.unique(rows.labels, return_inverse=True)
    _check_classes(classes)
    preprocessor = plan.new_preprocessor(pairs=learners.grow_trees)
    matrix = preprocessor.fit_transform(rows.table, codes)
    encoded = Encoded(matrix, codes, preprocessor, classes, rows.table)
    fitted = _fit_members(encoded, plan, learners.for_table(len(classes), len(codes)))
    companion = learners.companion(np.bincount(codes))
    if companion is None:
        return fitted
    with silenced():
        other = _fit_members(encoded, plan, companion.learner)
    fitted_companion = FittedCompanion(other.members, other.temperature, companion.weight)
    return replace(fitted, companion=fitted_companion)


def fit_pieces(
    pieces: Pieces, plan: Plan, learners: Learners, classes: npt.NDArray[Any] | None = None
) -> Fitted:
    """Fit on rows that come in pieces, with only a few pieces in memory at a time.

    `classes` are all class labels, sorted, if they are known beforehand. Raises what `fit` and
    `start` raise, and `DataError` if there is no piece.
    """
    first = first_rows(pieces)
    if learners.is_causal:
        with _placed(0, first):
            fitted = start(first, plan, learners, classes)
        for rows in pieces:
            with _placed(fitted.num_rows, rows):
                fitted = extended(fitted, rows, plan, remedy=IN_FIRST_ROWS)
        return fitted
    second = next(pieces, None)
    if second is None:
        return fit(first, plan, learners)
    others = chain([second], pieces)
    if learners.grow_trees:
        # These rows are in memory anyway, and more of them grow better trees.
        num_growing = max(FIRST_ROWS, rows_that_grow())
        with _placed(0, first):
            fitted = start(first, plan, learners, classes, num_growing=num_growing)
        for rows in others:
            # Many rows at a time: each call updates the sums of all pairs of leaves.
            more = first_rows(chain([rows], others))
            with _placed(fitted.num_rows, more):
                fitted = extended(fitted, more, plan, remedy=IN_FIRST_ROWS)
        members = fitted.members
        model, states = learners.finished(members.model, members.states)
        return replace(fitted, members=replace(members, model=model, states=states))
    plan.check_pieces(grows=False)
    folder = temporary_folder()
    encoded = _rows_in_file(first, others, plan, classes, folder)
    learner = learners.for_table(encoded.num_classes, len(encoded.codes))
    return _fit_members(encoded, plan, learner, spill=folder)


@contextmanager
def _placed(num_before: int, rows: Rows) -> Iterator[None]:
    """Let errors about rows say where in the table they are, which has `num_before` before them."""
    try:
        yield
    except DataError as error:
        raise DataError(
            f"Rows {num_before + 1:,} to {num_before + len(rows.labels):,} of the training table, "
            f"whose first rows decide how it is read: {error}"
        ) from error


def start(
    rows: Rows,
    plan: Plan,
    learners: Learners,
    classes: npt.NDArray[Any] | None = None,
    *,
    num_growing: int | None = None,
) -> Fitted:
    """Fit on the first rows, which teach the columns; other rows will be added.

    `classes` are all class labels that will ever occur, sorted; None takes those of these rows.
    With trees, the first `num_growing` rows teach the columns and grow the trees; None takes
    `rows_that_grow()`, and rows are held until there are as many.

    Raises:
        DataError, ConfigError: As `fit`, or the plan asks for a decision that needs all rows.
    """
    plan.check_pieces(grows=True)
    remedy = ""
    if classes is None:
        classes = np.unique(rows.labels)
        remedy = ", or name all that will occur, as `partial_fit(X, y, classes=...)`"
    _check_classes(classes, remedy)
    learner = learners.for_table(len(classes), len(rows.labels), grows=True)
    if learners.grow_trees:
        return _fit_held_rows(rows, classes, plan, learner, num_growing or rows_that_grow())
    preprocessor = plan.new_preprocessor()
    # Without labels, so that columns learn no class rates: the first rows alone show them poorly.
    matrix = preprocessor.fit_transform(rows.table)
    encoded = Encoded(matrix, class_codes(rows.labels, classes), preprocessor, classes)
    return _fit_members(encoded, plan, learner, grows=True)


def extended(
    fitted: Fitted, rows: Rows, plan: Plan, *, prequential: bool = False, remedy: str = ANNOUNCE
) -> Fitted:
    """The fitted value after reading more rows, in their order.

    `fitted` does not change, except that its model is moved to the device of the plan. With
    `prequential` the rows are predicted before they are read, and their score is added. `remedy` is
    what the error about a label that is not one of the classes tells users to do.

    Raises:
        UnsupportedReadout: The model cannot be extended.
        DataError: A label is not one of the classes, or a column cannot be encoded.
        ConfigError: The states were refined, or the plan asks for what needs all rows at once.
    """
    if plan.refine or fitted.refinement is not None:
        raise ConfigError(REFINED_AT_ONCE)
    codes = class_codes(rows.labels, fitted.classes, remedy)
    scores = fitted.prequential
    if prequential:
        score = _score(fitted.probabilities(rows.table, plan), codes, fitted.num_rows)
        scores = pd.concat([scores, score], ignore_index=True)
    if fitted.held is not None:
        # All rows are fitted anew, so arguments that were set since the call before do count.
        plan.check_pieces(grows=True)
        fitted.columns.transform(rows.table)  # raises for rows that cannot be encoded
        all_rows = joined_rows(fitted.held, rows)
        # Only the first fit warns of the columns, and the last one, which decides them for good.
        num_growing, learner = rows_that_grow(), fitted.members.model
        is_last = len(all_rows.labels) >= num_growing
        with nullcontext() if is_last else silenced():
            refitted = _fit_held_rows(all_rows, fitted.classes, plan, learner, num_growing)
        return replace(refitted, prequential=scores)
    matrix, preprocessor = fitted.columns.read(rows.table, codes)
    encoded = Encoded(matrix, codes, preprocessor, fitted.classes)
    members = extended_ensemble(fitted.members, encoded, plan)
    counts = fitted.counts + np.bincount(codes, minlength=len(fitted.classes))
    return replace(fitted, columns=preprocessor, members=members, counts=counts, prequential=scores)


def _fit_held_rows(
    rows: Rows,
    classes: npt.NDArray[Any],
    plan: Plan,
    learner: ContextLearner,
    num_growing: int,
) -> Fitted:
    """Fit on all rows so far, and hold them while there are fewer than `num_growing`.

    While rows are held, each member reads them in an order of its own, since all will be read again
    with the rows to come. Once there are enough, the first ones teach the columns and grow the
    trees for good, and the rows beyond them are added.
    """
    first = rows.part(slice(num_growing))
    are_enough = len(first.labels) == num_growing
    codes = class_codes(first.labels, classes)
    preprocessor = plan.new_preprocessor(pairs=True)
    labels = codes if len(np.unique(codes)) > 1 else None  # a single class has no rates
    matrix = preprocessor.fit_transform(first.table, labels, is_provisional=not are_enough)
    if are_enough:
        preprocessor = preprocessor.counting(first.table, codes)
        absent = classes[np.bincount(codes, minlength=len(classes)) == 0]
        if len(absent):
            warn_user(
                f"The first {num_growing:,} rows, which grow the trees, hold no row of classes "
                f"{shown(as_objects(absent))}, which are told apart the worse for it: if the rows "
                "are sorted, shuffle them and fit anew."
            )
    encoded = Encoded(matrix, codes, preprocessor, classes)
    fitted = _fit_members(encoded, plan, learner, grows=are_enough)
    if not are_enough:
        # Copied, since a caller may reuse the arrays for the next piece.
        return replace(fitted, held=first.copied())
    others = rows.part(slice(num_growing, None))
    return extended(fitted, others, plan) if len(others.labels) else fitted


def _check_classes(classes: npt.NDArray[Any], remedy: str = "") -> None:
    if len(classes) < 2:
        raise DataError(
            f"y holds one class only ({as_objects(classes)[0]!r}): give training rows of at least "
            f"two{remedy}."
        )
    texts = [label for label in classes.tolist() if isinstance(label, str)]
    warn_of_blanks(texts, "Classes", "the labels, as y.str.strip()")


def _rows_in_file(
    first: Rows, others: Pieces, plan: Plan, classes: npt.NDArray[Any] | None, folder: Path
) -> Encoded:
    """Encode rows that come in pieces, and hold their numbers in a temporary file."""
    # Without labels, so that columns learn no class rates: these would contain the labels of the
    # first rows, which the members read as well.
    preprocessor = plan.new_preprocessor().fit(first.table)
    labels: list[npt.NDArray[Any]] = []

    def parts() -> Iterator[Float32Array]:
        for rows in chain([first], others):
            with _placed(sum(map(len, labels)), rows):
                matrix = preprocessor.transform(rows.table)
            # Codes take less memory than the labels of a long table.
            labels.append(rows.labels if classes is None else class_codes(rows.labels, classes))
            yield matrix

    matrix = stored(parts(), len(preprocessor.used), folder)
    if classes is None:
        classes, codes = np.unique(joined_labels(labels), return_inverse=True)
    else:
        codes = np.concatenate(labels)
    _check_classes(classes)
    return Encoded(matrix, codes, preprocessor, classes)


def _fit_members(
    rows: Encoded,
    plan: Plan,
    learner: ContextLearner,
    *,
    grows: bool = False,
    spill: Path | None = None,
) -> Fitted:
    """The recipe: choose blocks and a temperature, fit members, refine or halve their states.

    With `grows`, rows will be added to the states, so members read these in the order of the table.
    See `fit_ensemble` for `spill`.
    """
    counts = np.bincount(rows.codes, minlength=rows.num_classes)
    class_weights(plan.class_weight, rows.classes, counts)  # raises for bad ones before the work
    warn_of_copies(rows.preprocessor, rows.matrix, rows.codes)
    learner = learner.to(plan.device)
    if grows and not learner.is_causal:
        raise DataError(
            f"y has {rows.num_classes} classes, more than a model can take that reads a table "
            "piece by piece: join classes, or fit all rows at once."
        )
    num_columns = rows.num_wanted(learner.max_columns)
    plan = plan.with_preset_of(learner, len(rows.matrix), num_columns).drawn()
    long_context = held_out.long_context(learner, rows, plan)
    if long_context.num_blocks > 1:
        learner = ContextBlocks(learner, long_context.num_blocks)
    temperature = held_out.temperature(learner, rows, plan)
    members = fit_ensemble(learner, rows, plan, in_order=grows, spill=spill)
    passes = None
    if plan.refine:
        members, passes = refined(members, rows, plan)
    # From here on, states to which no rows can be added are only read: float16 will do.
    members = members if learner.is_causal else members.halved()
    return Fitted(
        rows.preprocessor, members, rows.classes, counts, temperature, long_context, passes
    )


def _score(probabilities: FloatArray, codes: IntArray, rows_seen: int) -> pd.DataFrame:
    """A row of `Fitted.prequential`, from probabilities `[rows, classes]` and class indices."""
    # Probabilities are at least the epsilon of float64, as in scikit-learn's log-loss.
    of_labels = probabilities[np.arange(len(codes)), codes].clip(np.finfo(np.float64).eps)
    return pd.DataFrame(
        {
            "rows_seen": [rows_seen],
            "rows": [len(codes)],
            "log_loss": [float(-np.log(of_labels).mean())],
            "accuracy": [float((probabilities.argmax(axis=1) == codes).mean())],
        }
    )

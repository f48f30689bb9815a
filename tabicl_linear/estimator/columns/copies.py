"""Warns of training rows that are copies of others, which look like evidence and are none.

Learners choose by how well they predict rows that were left out. A copy of such a row, in the other
half or beside it, gives its label away: what knows rows by heart then seems to predict best.
"""

import numpy as np

from tabicl_linear.estimator.arrays import Float32Array, IntArray
from tabicl_linear.estimator.columns.counted_rates import CountedRateColumn
from tabicl_linear.estimator.columns.information import judged_rows
from tabicl_linear.estimator.columns.joint_rates import JointRateColumn
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.target_rates import RateColumn
from tabicl_linear.estimator.notices import brief, warn_user

LEAST_SHARE = 0.1
"""Least share of rows that repeat others for a warning. Fewer do little harm."""
FEWEST_ROWS = 30
"""Least number of different rows; in fewer, values may differ by chance."""
LEAST_DISTINCT = 0.9
"""Least number of different values per different row of a column that shows copies: where rows hold
the same few values, some are the same in all columns without being copies."""
MOST_OTHERS = 0.01
"""Maximum share of repeated rows with another label than the first one like them. Rows that merely
look alike have labels of their own."""
MOST_ROWS = 10_000
_OF_LABELS = RateColumn | CountedRateColumn | JointRateColumn
"""Records that encode copies of a row differently, since they leave its own label out."""


def warn_of_copies(preprocessor: TablePreprocessor, matrix: Float32Array, labels: IntArray) -> None:
    """Warn if a tenth of the training rows or more repeat others in all columns and in the label.

    There must be a column whose values hardly ever occur twice otherwise, beside another one: in
    tables of few values, or of one column, rows are the same by chance.

    Args:
        preprocessor: Fitted to the training rows.
        matrix: These rows as it encodes them, `[rows, columns]`.
        labels: Class index of each row.
    """
    used = preprocessor.used
    columns = [place for place, record in enumerate(used) if not isinstance(record, _OF_LABELS)]
    if len({used[place].position for place in columns}) < 2:
        return
    first, of_row = _different_rows(matrix, columns)
    are_copies = np.ones(len(matrix), dtype=bool)
    are_copies[first] = False
    num_copies = int(are_copies.sum())
    if len(first) < FEWEST_ROWS or num_copies < LEAST_SHARE * len(matrix):
        return
    if (labels != labels[first[of_row]]).sum() > MOST_OTHERS * num_copies:
        return
    different = first[judged_rows(len(first), MOST_ROWS)]
    for place in columns:
        if len(np.unique(matrix[different, place])) >= LEAST_DISTINCT * len(different):
            warn_user(
                f"{num_copies:,} of {len(matrix):,} training rows repeat others, with their "
                f"labels, although column {brief(used[place].name)} hardly ever has a value twice "
                "otherwise: they seem to be copies, as of oversampling or of a join. Copies give "
                "away the rows that are left out to judge predictions, so probabilities will be "
                "too certain. Give each row once (table.drop_duplicates()), and class_weight if "
                "classes should count more."
            )
            return


def _different_rows(matrix: Float32Array, columns: list[int]) -> tuple[IntArray, IntArray]:
    """The first of each of the rows that differ in these columns, and the number of each row's."""
    parts = matrix if len(columns) == matrix.shape[1] else matrix[:, columns]
    # By their bytes, since sorting rows of many columns takes long.
    keys = np.fromiter((hash(row.tobytes()) for row in parts), np.int64, len(parts))
    _, first, of_row = np.unique(keys, return_index=True, return_inverse=True)
    return first, of_row

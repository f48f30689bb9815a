"""The classes that a state file may hold, by tags that stay when a class moves or is renamed."""

from collections.abc import Mapping

from tabicl_linear.embedding.statistics import ContextStatistics
from tabicl_linear.estimator.choices import LongContext
from tabicl_linear.estimator.columns.categorical import CategoryColumn
from tabicl_linear.estimator.columns.counted_rates import CountedRateColumn
from tabicl_linear.estimator.columns.dropped import DroppedColumn
from tabicl_linear.estimator.columns.joint_rates import JointRateColumn
from tabicl_linear.estimator.columns.linear_scores import LinearScores
from tabicl_linear.estimator.columns.numeric import MissingColumn, NumericColumn
from tabicl_linear.estimator.columns.pairs import PairColumn
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.columns.target_rates import RateColumn
from tabicl_linear.estimator.fitted import Fitted, FittedCompanion
from tabicl_linear.estimator.learners.blocks import BlockStates, ContextBlocks
from tabicl_linear.estimator.learners.chosen_trees.boosting import GrownTrees
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import (
    ChosenTrees,
    ChosenTreesState,
)
from tabicl_linear.estimator.learners.chosen_trees.growing import TreeGrowth, TreeSums
from tabicl_linear.estimator.learners.chosen_trees.solving import LeafSums
from tabicl_linear.estimator.learners.chosen_trees.task_fit import TreePredictor
from tabicl_linear.estimator.learners.chosen_trees.trees import Trees
from tabicl_linear.estimator.learners.closed_form import ClosedForm, ClosedFormState
from tabicl_linear.estimator.learners.many_classes import DigitStates, ManyClasses
from tabicl_linear.estimator.members.ensemble import FittedEnsemble
from tabicl_linear.estimator.members.half_precision import HalfMatrix
from tabicl_linear.estimator.members.views import PowerColumn, PowerColumns, View
from tabicl_linear.estimator.rows.labelled import Rows
from tabicl_linear.kernels.state import CacheState, GramState, MatrixState
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.model import InContextState
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.ridge_inputs.earlier_rows import Candidates, EarlierRows
from tabicl_linear.ridge_inputs.inputs import RidgeState
from tabicl_linear.ridge_inputs.predictions import Solution
from tabicl_linear.ridge_inputs.recent_rows import RecentRows
from tabicl_linear.ridge_inputs.sums import RidgeSums

RECORDS: Mapping[str, type] = {
    "BlockStates": BlockStates,
    "CacheState": CacheState,
    "Candidates": Candidates,
    "CategoryColumn": CategoryColumn,
    "ChosenTreesState": ChosenTreesState,
    "ClosedFormState": ClosedFormState,
    "ContextBlocks": ContextBlocks,
    "ContextStatistics": ContextStatistics,
    "CountedRateColumn": CountedRateColumn,
    "DigitStates": DigitStates,
    "DroppedColumn": DroppedColumn,
    "EarlierRows": EarlierRows,
    "Fitted": Fitted,
    "FittedCompanion": FittedCompanion,
    "FittedEnsemble": FittedEnsemble,
    "GramState": GramState,
    "GrownTrees": GrownTrees,
    "HalfMatrix": HalfMatrix,
    "HeldTable": Rows,
    "InContextState": InContextState,
    "JointRateColumn": JointRateColumn,
    "LayerState": LayerState,
    "LeafSums": LeafSums,
    "LinearScores": LinearScores,
    "LongContext": LongContext,
    "ManyClasses": ManyClasses,
    "MatrixState": MatrixState,
    "MissingColumn": MissingColumn,
    "NumericColumn": NumericColumn,
    "PairColumn": PairColumn,
    "PowerColumn": PowerColumn,
    "PowerColumns": PowerColumns,
    "RateColumn": RateColumn,
    "RecentRows": RecentRows,
    "RidgeOptions": RidgeOptions,
    "RidgeState": RidgeState,
    "RidgeSums": RidgeSums,
    "Solution": Solution,
    "TablePreprocessor": TablePreprocessor,
    "TreeGrowth": TreeGrowth,
    "TreePredictor": TreePredictor,
    "TreeSums": TreeSums,
    "Trees": Trees,
    "View": View,
}
"""Class of each tag. A tag never gets another class, since files of all versions use it."""

TAGS: Mapping[type, str] = {record: tag for tag, record in RECORDS.items()}

LEARNERS: Mapping[str, type] = {"chosen_trees": ChosenTrees, "closed_form": ClosedForm}
"""Learners without parameters; files hold only the arguments of their constructors."""

KINDS: Mapping[type, str] = {learner: kind for kind, learner in LEARNERS.items()}

"""Features of rows that a pretrained network makes, and a head that is solved, not learned."""

from tabicl_linear.solved_head.class_statistics import ClassStatistics
from tabicl_linear.solved_head.network import LearnedFeatures, LearnedOptions
from tabicl_linear.solved_head.solve import SolvedHead, solve_head

__all__ = ["ClassStatistics", "LearnedFeatures", "LearnedOptions", "SolvedHead", "solve_head"]

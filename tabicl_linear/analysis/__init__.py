"""What a model's states do, and what they could do: pure functions of models, states and tables."""

from tabicl_linear.analysis.oracle import OracleOptions, optimise_states

__all__ = ["OracleOptions", "optimise_states"]

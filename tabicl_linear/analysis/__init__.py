"""What a model's states and write rates do: pure functions from states or streams to tables.

Every table is tidy: one row per observation, one column per variable; the functions list the
columns. Tasks, cells, layers, heads and queries count from 1, tokens from 0. Figures are drawn from
these tables.
"""

from tabicl_linear.analysis.contributions import contribution, contribution_ratio
from tabicl_linear.analysis.rate_profiles import write_rates
from tabicl_linear.analysis.ridge_targets import ridge_target
from tabicl_linear.analysis.row_order import order_sensitivity
from tabicl_linear.analysis.state_drift import drift
from tabicl_linear.analysis.state_optimisation import OracleOptions, optimise_states
from tabicl_linear.analysis.states import matrices, state_norms, states_at
from tabicl_linear.analysis.streams import Gates, gates, record_streams

__all__ = [
    "Gates",
    "OracleOptions",
    "contribution",
    "contribution_ratio",
    "drift",
    "gates",
    "matrices",
    "optimise_states",
    "order_sensitivity",
    "record_streams",
    "ridge_target",
    "state_norms",
    "states_at",
    "write_rates",
]

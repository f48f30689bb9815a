"""The configurations that TabArena runs: only the default one, as there is nothing to tune."""

from tabarena.utils.config_utils import ConfigGenerator

from tabicl_linear.evaluation.tabarena.model import TabICLLinearModel

gen_tabicl_linear = ConfigGenerator(
    model_cls=TabICLLinearModel, search_space={}, manual_configs=[{}]
)

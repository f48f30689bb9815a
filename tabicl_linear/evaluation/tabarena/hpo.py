"""What TabArena runs of the model: its default configuration alone, as there is nothing to tune."""

from tabarena.utils.config_utils import ConfigGenerator

from tabicl_linear.evaluation.tabarena.model import TabICLLinearModel

gen_tabicl_linear = ConfigGenerator(
    model_cls=TabICLLinearModel, search_space={}, manual_configs=[{}]
)

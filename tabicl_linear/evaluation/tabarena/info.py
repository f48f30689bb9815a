"""The model's entry in TabArena's registry.

It follows the layout of `tabarena.models.<key>.info` (tabarena 0.1.0), in which TabArena looks for
`ModelInfo` objects.
"""

from tabarena.models._method_metadata import ModelDescriptor
from tabarena.models._model_info import ModelInfo

from tabicl_linear.evaluation.tabarena.hpo import gen_tabicl_linear
from tabicl_linear.evaluation.tabarena.model import TabICLLinearModel

METHOD = "TabICLLinear"

tabicl_linear_descriptor = ModelDescriptor(display_name=METHOD, compute="gpu", is_bag=False)

tabicl_linear_method_metadata = tabicl_linear_descriptor.method_metadata(
    method=METHOD,
    ag_key=TabICLLinearModel.ag_key,
    model_key="TABICL_LINEAR",
    can_hpo=False,
    verified=False,
)

# The package contains the weights, so there is nothing to download before a benchmark.
tabicl_linear_info = ModelInfo(
    model_cls=TabICLLinearModel,
    search_space=gen_tabicl_linear,
    method_metadata=tabicl_linear_method_metadata,
    pip_extra=("tabicl-linear",),
)

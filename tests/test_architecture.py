"""Shapes of networks that cannot be built, or would not be what they say, are refused."""

import pytest
from contract.variants import SMALL, make
from torch import nn

from tabicl_linear.architecture import Architecture
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.ridge import Ridge
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import FinalState
from tabicl_linear.strategies.combined import Combined

CELLS = {"two_axis": True, "label_in_every_cell": True}

MISTAKES = [
    ({"label_code": "onehot"}, r"label_code='onehot' must be one of \('scalar', 'one_hot'\)"),
    ({"value_code": "sine"}, "value_code='sine' must be one of"),
    ({"two_axis": True, "head_reads": "all"}, "head_reads='all' must be one of"),
    ({"two_axis": True, "cell_attention_every": 0}, "cell_attention_every=0 must be at least 1"),
    ({"learn_states": True, "weave_states": True}, "leave learn_states out"),
    ({"group_offsets": (0, 1)}, r"group_offsets=\(0, 1\) concerns .* set two_axis to true"),
    ({"label_in_every_cell": True}, "label_in_every_cell=True concerns the cells"),
    ({"head_reads": "mean"}, "head_reads='mean' concerns the cells"),
    ({"cell_attention_every": 1}, "cell_attention_every=1 concerns the cells"),
    ({**CELLS, "group_stride": 1}, "group_stride=1 is the distance .* leave group_stride out"),
    ({**CELLS, "group_offsets": (0, 1), "features_per_group": 3}, "leave one out"),
    ({**CELLS, "group_offsets": 3}, r"group_offsets=3: give a list .* \[0, 1, 3\]"),
    ({**CELLS, "group_offsets": (0, -1)}, "whole numbers from 0"),
    ({**CELLS, "group_offsets": (0, 1.0)}, "whole numbers from 0"),
    ({**CELLS, "group_offsets": ()}, "leave columns out: give distinct offsets, 0, 1 among them"),
    ({**CELLS, "group_offsets": (0, 3)}, "leave columns out"),
    ({**CELLS, "group_offsets": (0, 1, 1)}, "repeat a column"),
    ({**CELLS, "group_offsets": (0, 1), "group_stride": 0}, "group_stride=0 must be at least 1"),
    ({"two_axis": True, "head_reads": "mean"}, "set label_in_every_cell to true"),
    ({"two_axis": True, "features_per_group": 0}, "features_per_group=0 must be at least 1"),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES)
def test_mistakes_are_refused_in_one_line(options, message):
    with pytest.raises(ConfigError, match=message) as refusal:
        Architecture(**options).make_embedding()
    assert "\n" not in str(refusal.value)


def test_rules_without_a_matrix_state_cannot_learn_where_they_start():
    shape = Architecture(dim=32, num_heads=2, depth=2, learn_states=True)
    with pytest.raises(
        ConfigError, match=r"learn_states starts .* RidgeRule .* leave learn_states"
    ):
        InContextModel.from_parts(Ridge, FinalState, Combined(), shape)


def test_offsets_from_a_file_are_those_from_python():
    options = {"two_axis": True, "group_stride": 1}
    listed = Architecture(group_offsets=[0, 2], **options)  # type: ignore[arg-type]
    assert listed == Architecture(group_offsets=(0, 2), **options)
    assert hash(listed) == hash(Architecture(group_offsets=(0, 2), **options))


@pytest.mark.parametrize(("depth", "every", "count"), [(4, 2, 2), (5, 2, 3), (5, 1, 5), (2, 3, 1)])
def test_there_is_one_attention_across_cells_for_every_layer_that_has_one(depth, every, count):
    shape = Architecture(dim=8, two_axis=True, depth=depth, cell_attention_every=every)
    assert len(shape.make_cell_attention()) == count
    assert not Architecture(dim=8, depth=depth).make_cell_attention()


def test_options_that_are_off_leave_no_parameters():
    plain = {name for name, _ in make("DeltaNet", "causal").named_parameters()}
    assert not any("learned" in name for name in plain)
    embedding = SMALL.make_embedding()
    assert isinstance(embedding.label_projection, nn.Linear)
    assert {name: tuple(p.shape) for name, p in embedding.named_parameters()} == {
        "feature_projection.weight": (32, 6),
        "feature_projection.bias": (32,),
        "label_projection.weight": (32, 1),
        "label_projection.bias": (32,),
    }

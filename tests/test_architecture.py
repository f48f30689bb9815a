"""Shapes of networks that cannot be built, or would not be what they say, are refused."""

import pytest
from contract.variants import SMALL, make
from torch import nn

from tabicl_linear.architecture import Architecture
from tabicl_linear.architecture_options import Cells
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.ridge import Ridge
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import FinalState
from tabicl_linear.strategies.combined import Combined

MISTAKES = [
    ({"codes": {"labels": "onehot"}}, r"labels='onehot' must be one of \('scalar', 'one_hot'\)"),
    ({"codes": {"values": "sine"}}, "codes.values='sine' must be one of"),
    ({"blocks": {"norm": "rms"}}, r"blocks.norm='rms' must be one of \('pre_rms', 'post_layer'\)"),
    ({"blocks": {"feed_forward": "relu"}}, "blocks.feed_forward='relu' must be one of"),
    ({"blocks": {"dim": 3}}, "architecture.blocks has no dim; it has feed_forward, norm,"),
    ({"initial_states": "learnt"}, "initial_states='learnt' must be one of"),
    ({"cells": {"head_reads": "all"}}, "head_reads='all' must be one of"),
    ({"cells": {"attention_every": 0}}, "attention_every=0 must be at least 1"),
    ({"cells": {"group_stride": 1}}, "architecture.cells has no group_stride; it has columns,"),
    ({"cells": {"stride": 1}}, "stride=1 is the distance .* leave stride out"),
    ({"cells": {"offsets": (0, 1), "columns": 3}}, "leave one out"),
    ({"cells": {"offsets": 3}}, r"offsets=3: give a list .* \[0, 1, 3\]"),
    ({"cells": {"offsets": (0, -1)}}, "whole numbers from 0"),
    ({"cells": {"offsets": (0, 1.0)}}, "whole numbers from 0"),
    ({"cells": {"offsets": ()}}, "leave columns out: give distinct offsets, 0, 1 among them"),
    ({"cells": {"offsets": (0, 3)}}, "leave columns out"),
    ({"cells": {"offsets": (0, 1, 1)}}, "repeat a column"),
    ({"cells": {"offsets": (0, 1), "stride": 0}}, "stride=0 must be at least 1"),
    ({"cells": {"head_reads": "mean"}}, "set label_in_every_cell to true"),
    ({"cells": {"columns": 0}}, "columns=0 must be at least 1"),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES)
def test_mistakes_are_refused_in_one_line(options, message):
    with pytest.raises(ConfigError, match=message) as refusal:
        Architecture(**options).make_embedding()
    assert "\n" not in str(refusal.value)


def test_rules_without_a_matrix_state_cannot_learn_where_they_start():
    shape = Architecture(dim=32, num_heads=2, depth=2, initial_states="learned")
    with pytest.raises(
        ConfigError, match=r"initial_states=learned .* RidgeRule .* set initial_states to zero"
    ):
        InContextModel.from_parts(Ridge, FinalState, Combined(), shape)


def test_offsets_from_a_file_are_those_from_python():
    listed = Architecture(cells={"offsets": [0, 2], "stride": 1})  # type: ignore[arg-type]
    assert listed == Architecture(cells=Cells(offsets=(0, 2), stride=1))
    assert hash(listed) == hash(Architecture(cells=Cells(offsets=(0, 2), stride=1)))


@pytest.mark.parametrize(("depth", "every", "count"), [(4, 2, 2), (5, 2, 3), (5, 1, 5), (2, 3, 1)])
def test_there_is_one_attention_across_cells_for_every_layer_that_has_one(depth, every, count):
    shape = Architecture(dim=8, depth=depth, cells=Cells(attention_every=every))
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

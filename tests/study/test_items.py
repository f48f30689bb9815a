"""Items: data that name arms and parts that exist, and what the command trains for one."""

import pytest

from experiments.study.arms import ARMS
from experiments.study.items import expected, items
from experiments.study.parts import PARTS
from experiments.study.scale import Scale, arms_of
from tabicl_linear.errors import ConfigError

NAMES = (
    *("strategies", "strategies_conv", "mixers", "final_state"),
    *("length_gap", "mitigations", "write_rates"),
    *("size_ranks", "oracle_real", "ridge", "long_pretraining", "gla_mitigations", "drift"),
    *("update_dynamics", "extended", "two_axis", "scaling", "minimal", "ours", "states", "rules"),
)


def test_every_table_and_figure_is_an_item():
    assert tuple(items()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_item_names_arms_and_parts_that_exist(name):
    assert set(items()[name].arms) <= set(ARMS)
    assert set(items()[name].parts) <= set(PARTS)


def test_published_numbers_belong_to_items_and_arms():
    assert set(expected()["item"]) <= set(items())
    assert set(expected()["arm"]) <= set(ARMS)
    assert expected()["source"].str.startswith("appendix").all()
    means = expected()[expected()["quantity"] == "plain mean"].set_index("arm")["value"]
    assert means["deltanet"] == 0.8605


def test_items_stand_for_their_arms_in_the_order_of_the_scale():
    scale = Scale.read("small")
    assert arms_of([], scale) == scale.order
    chosen = arms_of(["two_axis", "mixers", "deltanet"], scale)
    assert set(chosen) == {*items()["two_axis"].arms, *items()["mixers"].arms}
    assert len(chosen) == len(set(chosen))
    planned = [arm for arm in scale.order if arm in chosen]
    assert chosen[: len(planned)] == planned
    assert {"ridge"} < set(arms_of(["ridge"], scale)) == set(items()["ridge"].arms)
    assert arms_of(["arm:ridge", "arm:deltanet"], scale) == ["deltanet", "ridge"]
    with pytest.raises(ConfigError, match=r"dance: no item and no arm.*length_gap.*deltanet"):
        arms_of(["dance"], scale)

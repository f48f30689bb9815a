"""Scales of the study: how large the arms are, and how they are measured."""

from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from experiments.study.arms import ARMS
from experiments.study.items import items
from tabicl_linear.errors import ConfigError
from tabicl_linear.overlays import expanded, laid_over

HERE = Path(__file__).parent
CONFIGS = HERE.parents[1] / "configs"
ITEMS_OR_ARMS = "items of the study or arms (arm:ridge where an item has the name, too)"
"""Help text for command-line arguments that `arms_of` reads."""

Tree = dict[str, Any]


class Scale(NamedTuple):
    """The contents of a file of `scales/`.

    Attributes:
        name: smoke, small, small_2x, small_4x, medium or paper.
        config: Config that is laid over that of every arm.
        arms: Configs by patterns of names; each is laid over the matching arms, in order.
        trained_rows: Rows of a training table.
        order: The arms that are trained, most important first.
        lengths: Options of the measurement of length generalisation.
        looks: Options of the look at states and write rates.
        oracle: Options of the hidden-state oracle.
        states: Options of cheaper ways to better states.
        blocks: Options of reading contexts in blocks.
        decay_at_evaluation: Options of the decay of write rates at evaluation only.
        cost: Options of the measurement of times and bytes.
        real: Options of real tables: maximum rows of a benchmark's tables, columns, folds.
        oracle_real: The same for the oracle, with the number of folds to use.
    """

    name: str
    config: Tree
    arms: dict[str, Tree]
    trained_rows: int
    order: list[str]
    lengths: Tree
    looks: Tree
    oracle: Tree
    states: Tree
    blocks: Tree
    decay_at_evaluation: Tree
    cost: Tree
    real: Tree
    oracle_real: Tree

    @classmethod
    def read(cls, name: str) -> "Scale":
        """Read the scale of a name.

        Raises:
            ConfigError: There is no such scale, or it names an arm that does not exist.
        """
        path = HERE / "scales" / f"{name}.yaml"
        if not path.is_file():
            raise ConfigError(f"--scale {name}: there are {', '.join(names())}.")
        scale = cls(name, **expanded(path))
        check_arms(scale.order)
        return scale

    def config_of(self, arm: str) -> Tree:
        """Return the whole config of an arm as plain data."""
        files = [expanded(CONFIGS / f"{file}.yaml") for file in ARMS[arm]]
        above = [tree for pattern, tree in self.arms.items() if fnmatchcase(arm, pattern)]
        return reduce(laid_over, [*files, self.config, *above])


def names() -> list[str]:
    """Return the names of all scales."""
    return sorted(path.stem for path in (HERE / "scales").glob("*.yaml"))


def arms_of(chosen: list[str], scale: Scale) -> list[str]:
    """Return the arms that names of items or arms stand for, in the order of the scale.

    An item (items.yaml) stands for all its arms, including those outside the scale's order. If an
    arm has the same name as an item, the name means the item, and `arm:NAME` the arm.

    Raises:
        ConfigError: A name is neither that of an item nor that of an arm.
    """
    arms = list[str]()
    for name in chosen:
        arms += items()[name].arms if name in items() else [name.removeprefix("arm:")]
    check_arms(arms)
    ordered = [arm for arm in scale.order if not arms or arm in arms]
    return ordered + [arm for arm in dict.fromkeys(arms) if arm not in ordered]


def check_arms(arms: list[str]) -> None:
    """Refuse names that no arm has.

    Raises:
        ConfigError: A name is unknown; the message lists all names.
    """
    for arm in arms:
        if arm not in ARMS:
            raise ConfigError(
                f"{arm}: no item and no arm of the study; there are {', '.join([*items(), *ARMS])}."
            )

"""A scale of the study: how large its arms are, and what is measured of them."""

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
"""What a command says of its arguments that `arms_of` reads."""

Tree = dict[str, Any]


class Scale(NamedTuple):
    """What stands in a file of `scales/`.

    Attributes:
        name: smoke, small, small_4x, medium or paper.
        config: Laid over the config of every arm.
        arms: Patterns of names, to what is laid over the arms that match, in order.
        trained_rows: Rows of a table of training.
        order: The arms that are trained, most important first.
        lengths: Options of the measurement of length generalisation.
        looks: Options of the look at states and write rates.
        oracle: Options of the hidden-state oracle.
        states: Options of cheaper ways to better states.
        blocks: Options of reading in blocks.
        decay_at_evaluation: Options of the decay of write rates at evaluation alone.
        cost: Options of times and bytes.
        real: Options of real tables: most rows of a benchmark's tables, columns, folds.
        oracle_real: The same for the oracle, with how many of the folds are used.
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
        """The scale of a name.

        Raises:
            ConfigError: There is none, or it names an arm that does not exist.
        """
        path = HERE / "scales" / f"{name}.yaml"
        if not path.is_file():
            raise ConfigError(f"--scale {name}: there are {', '.join(names())}.")
        scale = cls(name, **expanded(path))
        check_arms(scale.order)
        return scale

    def config_of(self, arm: str) -> Tree:
        """The whole config of an arm, as plain data."""
        files = [expanded(CONFIGS / f"{file}.yaml") for file in ARMS[arm]]
        above = [tree for pattern, tree in self.arms.items() if fnmatchcase(arm, pattern)]
        return reduce(laid_over, [*files, self.config, *above])


def names() -> list[str]:
    """Names of all scales."""
    return sorted(path.stem for path in (HERE / "scales").glob("*.yaml"))


def arms_of(chosen: list[str], scale: Scale) -> list[str]:
    """The arms that items or arms by name need, in the order of the scale.

    An item (items.yaml) stands for all its arms, also those that the scale does not order. Where an
    arm has the same name, the item is meant, and `arm:NAME` is the arm.

    Raises:
        ConfigError: A name that neither an item nor an arm has.
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
        ConfigError: One of them; the message lists those there are.
    """
    for arm in arms:
        if arm not in ARMS:
            raise ConfigError(
                f"{arm}: no item and no arm of the study; there are {', '.join([*items(), *ARMS])}."
            )

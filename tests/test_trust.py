"""What annotations of this package's classes allow, and what values may be."""

import importlib
import inspect
import pkgutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import tabicl_linear
from tabicl_linear.architecture import Architecture
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.priors.base import Prior
from tabicl_linear.priors.rows import RowDistribution
from tabicl_linear.readouts import Readout
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.trust import Allowed, check, is_own, of_annotation, of_class, of_dataclass, words

BASES = (SequenceMixer, Readout, Strategy, Prior, RowDistribution, Optimizer, LRScheduler)
PARTS = ("mixers", "readouts", "strategies", "priors", "training")
CLASSES = [
    cls
    for part in PARTS
    for module in pkgutil.walk_packages(tabicl_linear.__path__, "tabicl_linear.")
    if module.name.split(".")[1] == part
    for cls in vars(importlib.import_module(module.name)).values()
    if inspect.isclass(cls) and cls.__module__ == module.name and issubclass(cls, BASES)
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_class_of_a_config_is_allowed_with_its_defaults(cls):
    path = f"{cls.__module__}.{cls.__qualname__}"
    parameters = inspect.signature(cls).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    check("x", {"class_path": path, "init_args": defaults}, Allowed(bases=BASES))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_no_class_of_a_config_takes_an_import_path(cls):
    for name, allowed in of_class(cls).items():
        with pytest.raises(ConfigError, match=f"^{name}='torch.os.getcwd'"):
            check(name, "torch.os.getcwd", allowed)


@pytest.mark.parametrize(
    "annotation", [str, Any, object, Callable, Path, str | None, list[str], dict[str, Any], type]
)
@pytest.mark.parametrize("value", ["torch.os.getcwd", "a", {"class_path": "os.system"}])
def test_annotations_that_could_import_take_plain_data_only(annotation, value):
    with pytest.raises(ConfigError, match="trust_code"):
        check("x", value, of_annotation(annotation))
    check("x", [1, 2.5, None, True], of_annotation(annotation))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Literal["a", "b"], "a"),
        (Literal["a", "b"] | None, None),
        (tuple[float, ...], [1.0, 2.0]),
        (dict[int, float], {3: 1.0}),
        (tuple[dict[Literal["a"], float], ...], [{"a": 1.0}]),
        (RowDistribution | int, {"class_path": "tabicl_linear.priors.rows.FixedRows"}),
        (dict[int, RowDistribution | int], {3: "tabicl_linear.priors.rows.FixedRows"}),
        (Architecture, {"blocks": {"norm": "pre_rms"}, "ridge_inputs": {"form": "earlier_rows"}}),
    ],
)
def test_what_annotations_say_is_taken(annotation, value):
    check("x", value, of_annotation(annotation))


@pytest.mark.parametrize(
    "value",
    [
        "c",
        "a\n",
        b"a",
        {"a": 1},
        OrderedDict(a=1),
        {("a", 1): 1},
        object(),
        {"class_path": "a"},
    ],
)
def test_what_a_place_does_not_expect_is_refused(value):
    with pytest.raises(ConfigError, match="trust_code"):
        check("x", value, words("a", "b"))


@pytest.mark.parametrize(
    "value",
    [
        {"class_path": "tabicl_linear.priors.TreePrior", "init_args": {"max_categories": "a.b"}},
        {"class_path": "tabicl_linear.priors.TreePrior", "dict_kwargs": {"x": "a.b"}},
        {"class_path": "tabicl_linear.priors.TreePrior", "other": 3},
        {"class_path": ["tabicl_linear.priors.TreePrior"]},
        {"class_path": "tabicl_linear.priors.Mixture", "init_args": {"priors": ["a.B"]}},
        {"init_args": {"max_categories": 3}},
        {"priors": []},
    ],
)
def test_arguments_of_classes_are_checked_too(value):
    with pytest.raises(ConfigError, match="trust_code"):
        check("x", value, of_annotation(Prior))


@pytest.mark.parametrize(
    "path",
    [
        "tabicl_linear.cli.verbs.os.getcwd",
        "tabicl_linear.trust.Any",
        "tabicl_linear.recipe.Readout ",
        "tabicl_linear..readouts.Causal",
        "tabicl_linear.__main__.Causal",
        "tabicl_linear_other.readouts.Causal",
        "tabicl_linear.readouts.nothing",
        "tabicl_linear.mixers.delta.DeltaNet",
        "torch.nn.Module",
    ],
)
def test_other_paths_are_not_those_of_a_class_of_the_kind(path):
    assert not is_own(path, (Readout,))


def test_fields_that_a_dataclass_does_not_have_take_plain_data_only():
    check("x", {"from_later_versions": 3}, of_dataclass(Architecture))
    with pytest.raises(ConfigError, match=r"^x\.from_later_versions='text'"):
        check("x", {"from_later_versions": "text"}, of_dataclass(Architecture))


def test_a_value_that_contains_itself_is_refused():
    circle = {}
    circle["a"] = [circle]
    with pytest.raises(ConfigError, match=r"^x\.a\.0\.a"):
        check("x", circle, Allowed(mapping=True))

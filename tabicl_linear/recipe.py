"""A model as plain data: class paths and arguments, without pickled objects.

A recipe is the tree under `model:` in a config file, and under the hyper-parameters in a
checkpoint. Files with former names of network options are read as well (`former_options`).
"""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import yaml

from tabicl_linear import former_options
from tabicl_linear.backends.choice import Backend
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.model import Architecture, InContextModel
from tabicl_linear.overlays import contains_itself
from tabicl_linear.readouts import Readout
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.trust import OWN, Allowed, check, of_dataclass, refused

Recipe = dict[str, Any]
_SLOTS: dict[str, tuple[type, int]] = {
    # slot -> base class, and the number of leading arguments that the model itself supplies
    "mixer": (SequenceMixer, 2),
    "readout": (Readout, 1),
    "strategy": (Strategy, 0),
}


def extract(tree: Mapping[str, Any]) -> Recipe:
    """The recipe in a `model:` section, without the optimiser and other training options.

    Raises:
        CheckpointError: A part of the model is missing.
    """
    missing = [name for name in (*_SLOTS, "architecture") if name not in tree]
    if missing:
        raise CheckpointError(
            f"The checkpoint does not say how to build its model: {', '.join(missing)} missing. "
            "Was it written by `tabicl-linear fit`?"
        )
    recipe: Recipe = {name: _slot(name, tree[name]) for name in _SLOTS}
    recipe["architecture"] = former_options.current(tree["architecture"])
    return recipe


def override(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """The recipe with `model.<path>=<YAML value>` strings applied.

    Raises:
        ConfigError: A string has another form, or the recipe has no such path.
    """
    changed = {name: _copy(part) for name, part in recipe.items()}
    if isinstance(overrides, str):
        raise ConfigError(f"overrides={overrides!r} is one text; give a list of such texts.")
    for text in overrides:
        path, equals, value = text.partition("=")
        section, *keys = path.split(".")
        options = _options_of(changed, keys) if section == "model" and equals else None
        if options is None:
            raise ConfigError(
                f"override {text!r} does not name a part of the model; write for example "
                "model.mixer.init_args.decay_constant=256."
            )
        options[keys[-1]] = _value(text, value)
    return changed


def _options_of(recipe: Recipe, keys: Sequence[str]) -> dict[str, Any] | None:
    """The dictionary of a recipe that holds the last of the keys; None if there is none."""
    part, *inner = keys or [""]
    # Besides its arguments, a slot has only its class path.
    if not inner or (part in _SLOTS and len(inner) == 1 and inner[0] != "class_path"):
        return None
    options: Any = recipe.get(part)
    for key in inner[:-1]:
        if not isinstance(options, dict):
            return None
        if part == "architecture":
            options.setdefault(key, {})  # a group without any option in the recipe
        options = options.get(key)
    return options if isinstance(options, dict) else None


def check_trust(recipe: Recipe) -> None:
    """Check that a file's recipe has only classes of this package and plain arguments.

    Raises:
        ConfigError: It has something else; the message names the key.
    """
    for name, (base, _) in _SLOTS.items():
        check(f"model.{name}", recipe[name], Allowed(bases=(base,)))
    check("model.architecture", recipe["architecture"], of_dataclass(Architecture))


def build(recipe: Recipe, *, backend: Backend = "auto", trust_code: bool = False) -> InContextModel:
    """Assemble the model that a recipe describes, with new parameters.

    Args:
        recipe: Parts of the model.
        backend: Which kernels compute the mixers.
        trust_code: Also import classes from modules outside tabicl_linear.

    Raises:
        ConfigError: A class or argument does not exist, parts do not fit together, or the backend
            cannot run here.
    """
    try:
        return _assemble(recipe, backend, trust_code)
    except (TypeError, AttributeError) as error:  # a value whose type the argument does not take
        raise ConfigError(f"The model cannot be built as described: {error}.") from error


def _assemble(recipe: Recipe, backend: Backend, trust_code: bool) -> InContextModel:
    parts = {name: _factory(name, recipe[name], trust_code) for name in _SLOTS}
    for name in recipe["architecture"].keys() & former_options.REMEDIES.keys():
        raise ConfigError(former_options.remedy(name))
    try:
        architecture = Architecture(**recipe["architecture"])
    except TypeError as error:
        fields = [field.name for field in dataclasses.fields(Architecture)]
        raise ConfigError(f"architecture: {error}; it has {', '.join(fields)}.") from error
    return InContextModel.from_parts(
        parts["mixer"],
        parts["readout"],
        strategy=parts["strategy"](),
        architecture=architecture,
        backend=backend,
    )


def _value(text: str, value: str) -> Any:
    try:
        tree = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {text!r}: the value is not valid YAML.") from error
    if contains_itself(tree):
        raise ConfigError(
            f"override {text!r}: an alias (*) stands inside of what it stands for; write it out."
        )
    if isinstance(tree, str):
        try:
            return float(tree)  # YAML 1.1 reads 1e-6, without a dot, as text
        except ValueError:
            return tree
    return tree


def _slot(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = {"class_path": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("class_path"), str):
        raise CheckpointError(f"{name} is {value!r}; expected a class_path and init_args.")
    return {"class_path": value["class_path"], "init_args": dict(value.get("init_args") or {})}


def _copy(part: Any) -> Any:
    return {k: _copy(v) for k, v in part.items()} if isinstance(part, dict) else part


def _factory(name: str, part: dict[str, Any], trust_code: bool) -> Callable[..., Any]:
    base, supplied = _SLOTS[name]
    cls = _import(name, part["class_path"], base, trust_code)
    arguments = part["init_args"]
    parameters = list(inspect.signature(cls).parameters.values())[supplied:]
    allowed = [parameter.name for parameter in parameters]
    # Names for `**options` can only be checked by the call itself, as happened in `fit`.
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    unknown = sorted(set(arguments) - set(allowed))
    if unknown and not takes_more:
        raise ConfigError(
            f"{name}: {part['class_path']} has no argument {', '.join(unknown)}; it has "
            f"{', '.join(allowed) or 'none'}."
        )
    return partial(cls, **arguments)


def _import(name: str, class_path: str, base: type, trust_code: bool) -> type:
    module_name, _, class_name = class_path.rpartition(".")
    if not trust_code and not class_path.startswith(f"{OWN}."):
        raise refused(f"model.{name}", class_path)
    try:
        cls = vars(importlib.import_module(module_name)).get(class_name)
    except ImportError as error:
        raise ConfigError(f"{name}: {class_path} cannot be imported: {error}.") from error
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        raise ConfigError(f"{name}: {class_path} is no subclass of {base.__name__}.")
    return cls

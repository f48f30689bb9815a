"""What a checkpoint may decide without being trusted: plain data, and classes from a list.

A checkpoint comes from anywhere, and the parser of configs imports and calls what a text names. So
nothing is judged by how it looks. Every place of a config has a list of what may stand there;
numbers, booleans and None may stand everywhere, since they name nothing. A text needs a place that
expects it, a class a place that expects one of its kind, and what is not listed is refused before
anything is imported. Here are the rules and the classes of this package; `cli.trusted` lists those
of PyTorch and Lightning.
"""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tabicl_linear.errors import ConfigError

OWN = "tabicl_linear"
DEPTH = 20
"""Levels of dictionaries and lists; a tree with more contains itself."""
PLAIN = (bool, int, float, type(None))


@dataclass(frozen=True)
class Allowed:
    """What may stand at one place of a config, in addition to numbers, booleans and None.

    The same may stand in lists there, and as values of a dictionary if that is allowed.

    Attributes:
        texts: Pattern that a whole text must match; none if left out.
        bases: Classes of this package that are derived from one of these may be named.
        named: Other classes that may be named, by path, with what their arguments may be.
        fields: What may stand below each name of a dictionary, below others plain data; None if no
            dictionary may stand here.
        mapping: Whether a dictionary with any keys may stand here.
    """

    texts: str | None = None
    bases: tuple[type, ...] = ()
    named: Mapping[str, Mapping[str, "Allowed"]] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, "Allowed"] | None = None
    mapping: bool = False


def words(*texts: str) -> Allowed:
    """A place where one of these texts may stand."""
    return Allowed("|".join(map(re.escape, texts)))


def check(key: str, value: Any, allowed: Allowed, depth: int = DEPTH) -> None:
    """Refuse a value that is more than its place allows.

    Args:
        key: Dotted name of the place, for the message.
        value: What a checkpoint has there; it is not changed, and nothing outside is imported.
        allowed: What may be there.
        depth: How many levels the value may have.

    Raises:
        ConfigError: It is refused; the message names the key.
    """
    if type(value) in PLAIN:
        return
    takes_classes = bool(allowed.bases or allowed.named)
    if type(value) is str:
        if allowed.texts is not None and re.fullmatch(allowed.texts, value):
            return
        if not takes_classes:
            raise refused(key, value)
        _check_class(key, {"class_path": value}, allowed, depth)
    elif depth and type(value) in (list, tuple):
        for position, item in enumerate(value):
            check(f"{key}.{position}", item, allowed, depth - 1)
    elif depth and type(value) is dict and all(type(name) in (str, int) for name in value):
        if takes_classes and "class_path" in value:
            _check_class(key, value, allowed, depth)
            return
        if allowed.fields is None and not allowed.mapping:
            raise refused(key, value)
        for name, item in value.items():
            below = allowed if allowed.fields is None else allowed.fields.get(name, Allowed())
            check(f"{key}.{name}", item, below, depth - 1)
    else:
        raise refused(key, value)


def is_own(class_path: Any, bases: tuple[type, ...]) -> bool:
    """Whether a path is that of a class of this package derived from one of `bases`.

    Only modules of this package are imported, and a name that such a module has imported from
    another package is not a class of this one.
    """
    if not re.fullmatch(rf"{OWN}(\.[A-Za-z][A-Za-z0-9_]*)+", class_path):
        return False
    module, _, name = class_path.rpartition(".")
    try:
        cls = vars(importlib.import_module(module)).get(name)
    except ImportError:
        return False
    return inspect.isclass(cls) and issubclass(cls, bases) and _is_ours(cls)


def of_class(cls: type) -> dict[str, Allowed]:
    """What the arguments of a class of this package may be, from their annotations."""
    parameters = inspect.signature(cls, eval_str=True).parameters.values()
    return {parameter.name: of_annotation(parameter.annotation) for parameter in parameters}


def of_dataclass(cls: type) -> Allowed:
    """What the fields of a dataclass may be, from their annotations."""
    hints = get_type_hints(cls)
    return Allowed(fields={name: of_annotation(hint) for name, hint in hints.items()})


def of_annotation(annotation: Any) -> Allowed:
    """What an annotation allows: literals as texts, classes of this package, dictionaries.

    Everything else allows plain data and no more: `str`, `Any`, `object`, `Callable` and classes of
    other packages, for all of which the parser may import what a text names.
    """
    if get_origin(annotation) is Literal:
        return words(*(text for text in get_args(annotation) if isinstance(text, str)))
    if inspect.isclass(annotation) and _is_ours(annotation):
        if dataclasses.is_dataclass(annotation):
            return of_dataclass(annotation)
        return Allowed(bases=(annotation,))
    parts = [of_annotation(part) for part in get_args(annotation)]
    texts = [part.texts for part in parts if part.texts is not None]
    origin = get_origin(annotation)
    return Allowed(
        texts="|".join(texts) if texts else None,
        bases=tuple(base for part in parts for base in part.bases),
        fields=next((part.fields for part in parts if part.fields is not None), None),
        mapping=(inspect.isclass(origin) and issubclass(origin, Mapping))
        or any(part.mapping for part in parts),
    )


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == OWN


def _check_class(key: str, value: dict[Any, Any], allowed: Allowed, depth: int) -> None:
    path = value["class_path"]
    if type(path) is not str or value.keys() - {"class_path", "init_args", "dict_kwargs"}:
        raise refused(key, value)
    if path in allowed.named:
        arguments = allowed.named[path]
    elif is_own(path, allowed.bases):
        module, _, name = path.rpartition(".")
        arguments = of_class(vars(importlib.import_module(module))[name])
    else:
        raise refused(key, path)
    for part, inside in (("init_args", arguments), ("dict_kwargs", {})):
        check(f"{key}.{part}", value.get(part), Allowed(fields=inside), depth - 1)


def refused(key: str, value: Any) -> ConfigError:
    """The error for a value that a checkpoint may not decide."""
    text = str(value) if type(value) is str else type(value).__name__
    if type(value) is dict and type(value.get("class_path")) is str:
        text = value["class_path"]
    return ConfigError(
        f"{key}={text[:200]!r}: a checkpoint may set numbers, and name the classes that are listed "
        "for this place, but not this. If you trust it, set trust_code to true: --trust_code true "
        "of fit, validate and test, --trust-code of other commands, and in Python "
        "load_model(PATH, trust_code=True), which classifiers take as their model."
    )

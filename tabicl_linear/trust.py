"""What a checkpoint may contain without being trusted: plain data, and classes from a list.

A checkpoint may come from anywhere, and the config parser imports and calls what a text names. So
every place of a config has a list of what is allowed there, and everything else is refused before
anything is imported. Numbers, booleans and None are allowed everywhere, since they name nothing. A
text is allowed only where such a text is expected, and a class only where one of its kind is. This
module has the rules, and the classes of this package; `cli.trusted` lists those of PyTorch and
Lightning.
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
"""Most levels of dictionaries and lists; a tree with more is taken to contain itself."""
PLAIN = (bool, int, float, type(None))


@dataclass(frozen=True)
class Allowed:
    """What is allowed at one place of a config, in addition to numbers, booleans and None.

    The same is allowed in lists there, and for values of a dictionary if `mapping` is set.

    Attributes:
        texts: Pattern that a whole text must match; None if no text is allowed.
        bases: Classes of this package that are derived from one of these are allowed.
        named: Other allowed classes, by path, with what is allowed for each of their arguments.
        fields: What is allowed for each key of a dictionary; other keys may have plain data. None
            if no dictionary with such keys is allowed.
        mapping: Whether a dictionary with any keys is allowed.
    """

    texts: str | None = None
    bases: tuple[type, ...] = ()
    named: Mapping[str, Mapping[str, "Allowed"]] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, "Allowed"] | None = None
    mapping: bool = False


def words(*texts: str) -> Allowed:
    """A place where one of these texts is allowed."""
    return Allowed("|".join(map(re.escape, texts)))


def check(key: str, value: Any, allowed: Allowed, depth: int = DEPTH) -> None:
    """Check that a value is allowed at its place.

    Nothing outside of this package is imported for the check.

    Args:
        key: Dotted name of the place, for the message.
        value: The value in the checkpoint; it is not changed.
        allowed: What is allowed there.
        depth: Most levels of dictionaries and lists in the value.

    Raises:
        ConfigError: The value is not allowed; the message names the key.
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
    """Whether a path names a class of this package that is derived from one of `bases`.

    Only modules of this package are imported. A class that such a module has imported from another
    package does not count as one of this package.
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
    """What is allowed for the arguments of a class of this package, from their annotations."""
    parameters = inspect.signature(cls, eval_str=True).parameters.values()
    return {parameter.name: of_annotation(parameter.annotation) for parameter in parameters}


def of_dataclass(cls: type) -> Allowed:
    """What is allowed for the fields of a dataclass, from their annotations."""
    hints = get_type_hints(cls)
    return Allowed(fields={name: of_annotation(hint) for name, hint in hints.items()})


def of_annotation(annotation: Any) -> Allowed:
    """What an annotation allows: literals as texts, classes of this package, dictionaries.

    Every other annotation allows only plain data. For `str`, `Any`, `object`, `Callable` and
    classes of other packages, the parser might import what a text names.
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
    """The error for a value that a checkpoint may not contain."""
    text = str(value) if type(value) is str else type(value).__name__
    if type(value) is dict and type(value.get("class_path")) is str:
        text = value["class_path"]
    return ConfigError(
        f"{key}={text[:200]!r}: a checkpoint may set numbers, and name the classes that are listed "
        "for this place, but not this. If you trust it, set trust_code to true: --trust_code true "
        "of fit, validate and test, --trust-code of other commands, and in Python "
        "load_model(PATH, trust_code=True), which classifiers take as their model."
    )

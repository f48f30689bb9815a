"""Config files that are made of other files: `overlays: [mixer/delta, readout/causal]`.

A name is the path of a file without `.yaml`, relative to the file that names it. Later overlays
override earlier ones, and the file's own sections override all of them.
"""

from pathlib import Path
from typing import Any

import yaml

from tabicl_linear.errors import ConfigError

KEY = "overlays"
MOST_QUICK = 8192
"""Most characters for PyYAML's fast parser, which ten thousand nested brackets would crash."""
Tree = dict[str, Any]


def expanded(path: Path) -> Tree:
    """The tree of a config file, including its overlays.

    Raises:
        ConfigError: A file is missing, is not a config, or includes itself.
    """
    return _expanded(path, ())


def _expanded(path: Path, above: tuple[Path, ...]) -> Tree:
    here = path.resolve()
    if here in above:
        chain = " -> ".join(file.name for file in (*above[above.index(here) :], here))
        raise ConfigError(f"--config {path}: {KEY} lead in a circle ({chain}); take one out.")
    tree = _read(path, above)
    names = tree.pop(KEY, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"--config {path}: {KEY}={names}; give a list of files, such as [mixer/delta]."
        )
    whole: Tree = {}
    for name in names:
        whole = laid_over(whole, _expanded(path.parent / f"{name}.yaml", (*above, here)))
    return laid_over(whole, tree)


def contains_itself(tree: Any, above: tuple[int, ...] = ()) -> bool:
    """Whether a dictionary or list is one of its own parts, as YAML's aliases allow."""
    if not isinstance(tree, dict | list):
        return False
    parts = tree.values() if isinstance(tree, dict) else tree
    inside = (*above, id(tree))
    return id(tree) in above or any(contains_itself(part, inside) for part in parts)


def laid_over(below: Tree, above: Tree) -> Tree:
    """Merge two trees; values in `above` win.

    If `above` names another class than `below`, it does not inherit that class's arguments.
    """
    other_class = "class_path" in above and above["class_path"] != below.get("class_path")
    whole = {} if other_class else dict(below)
    for key, value in above.items():
        former = whole.get(key)
        if isinstance(former, dict) and isinstance(value, dict):
            whole[key] = laid_over(former, value)
        else:
            whole[key] = value
    return whole


class _Once(yaml.constructor.SafeConstructor):
    """Refuses a key that occurs twice in a section; PyYAML would silently use the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        before = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in before:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} occurs twice, put both into one",
                    problem_mark=key.start_mark,
                )
            before.add(key.value)
        return super().construct_mapping(node, deep)


class _Loader(_Once, yaml.SafeLoader):
    pass


if yaml.__with_libyaml__:

    class _QuickLoader(_Once, yaml.CSafeLoader):
        pass


def loaded(text: str) -> Any:
    """Parse YAML like `yaml.safe_load`, but in a tenth of the time and without repeated keys.

    Raises:
        yaml.YAMLError: The text is not valid YAML; the message is that of `yaml.safe_load`.
    """
    if yaml.__with_libyaml__ and len(text) <= MOST_QUICK:
        try:
            return yaml.load(text, Loader=_QuickLoader)  # safe, as its base class is
        except (yaml.YAMLError, UnicodeEncodeError):  # parse again: the other messages quote text
            pass
    return yaml.load(text, Loader=_Loader)


def _read(path: Path, above: tuple[Path, ...]) -> Tree:
    named_by = f", an overlay of {above[-1].name}" if above else ""
    try:
        tree = loaded(path.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = "name it without .yaml" if above else "give the path of a YAML file"
        raise ConfigError(f"--config {path}{named_by}: no such file; {remedy}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"--config {path}{named_by}: not UTF-8 ({error.reason} at byte {error.start}); save it "
            "as UTF-8."
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(
            f"--config {path}{named_by} is not valid YAML: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(tree, dict):
        raise ConfigError(
            f"--config {path}{named_by}: no config; give a YAML file with keys such as model, data."
        )
    if contains_itself(tree):
        raise ConfigError(
            f"--config {path}{named_by}: an alias (*) stands inside of what it stands for; write "
            "the section out."
        )
    return tree

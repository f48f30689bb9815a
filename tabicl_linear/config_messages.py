"""Turns errors of the config parser into one line with key, value and remedy."""

import difflib
import errno
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from typing import Any, NoReturn

import yaml
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch.cli import LightningArgumentParser
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from tabicl_linear import former_options
from tabicl_linear.errors import ConfigError, one_line
from tabicl_linear.overlays import contains_itself, expanded, loaded

BAD_INPUT = (ValueError, TypeError, KeyError, ImportError, OSError, MisconfigurationException)
"""Errors that libraries raise for invalid options, files and folders."""
OBJECTIONS = (*BAD_INPUT, RuntimeError)
"""The same for Lightning, which also raises RuntimeError for some invalid options."""

DUMPER = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
"""PyYAML's fast dumper, where it was built with libyaml, as its wheels are."""

FULL = {
    errno.ENOSPC: "make room, or name a folder on another disk",
    errno.EDQUOT: "make room, or name a folder on another disk",
    errno.EFBIG: "raise the limit of file sizes",
}
"""Errors of writing to an open file, which do not name the file, with the remedies."""

HELP = (
    "`tabicl-linear fit --help-all` lists all keys, "
    "`--model.mixer.help=CLASS_PATH` those of a class"
)

MODULES = "install it, or name the folder of its file in PYTHONPATH"

PACKAGES = ("tabicl_linear.", "torch.", "lightning.", "jsonargparse.")
"""Prefixes of modules that are not the user's own."""

ABOUT_TYPES = (
    "Expected |Does not validate|Not a valid subclass|Unexpected import path|invalid literal|"
    "a class path|a dict with"
)
"""Pattern of the lines in which jsonargparse only says that a value has another type."""


NO_CLASS = r"Problem with given class_path '(.*?)': module .* has no attribute .*"
"""Pattern of jsonargparse's message about a class that its module does not have."""


class OneLineParser(LightningArgumentParser):
    """Raises a one-line `ConfigError` where jsonargparse would print its usage and exit.

    Attributes:
        described: The class whose arguments the parser reads, if it is for one `class_path`.
        arguments: Names of the arguments of that class.
    """

    described: type | None = None
    arguments: Sequence[str] = ()

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the message as one line."""
        raise ConfigError(rewritten(message, self)) from ex

    def add_class_arguments(
        self, class_type: type, nested_key: str | None = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        """Add the options of a class, with two changes to what jsonargparse does.

        Values are never read from files: jsonargparse would take a file called `ddp` or `auto` in
        the current folder for the content of an option. And an argument without type and default
        is required: jsonargparse would set it to None if the config does not name it.
        """
        kwargs["sub_configs"] = False
        added: list[str] = super().add_class_arguments(class_type, nested_key, *args, **kwargs)
        if nested_key is None:
            self.described, self.arguments = class_type, added
            untyped = set(added) & _without_type_or_default(class_type)
            for action in self._actions:
                action.required = action.required or action.dest in untyped
        return added

    def parse_string(self, content: str, path: str = "", *args: Any, **kwargs: Any) -> Namespace:
        """Parse a config; if it is a file, with its overlays."""
        if path:  # jsonargparse works in the folder of the file here
            tree = expanded(Path(path).resolve())
            self._check_sections(tree, f"--config {path}")
            _check_class_paths(tree, f"--config {path}: ")
            content = yaml.dump(tree, Dumper=DUMPER)
        else:
            with suppress(yaml.YAMLError):  # the parser below reports it
                self._check_sections(loaded(content), "--config")
                _check_class_paths(loaded(content), "--config: ")
        return super().parse_string(content, path, *args, **kwargs)

    def _check_sections(self, tree: Any, where: str) -> None:
        """Raise `ConfigError` for sections that are empty or no mapping.

        A section is empty if all its lines are commented out, for example; jsonargparse would
        silently use the defaults of all its options. Text is allowed: it names another file.
        """
        typed = {action.dest for action in self._actions if "_typehint" in vars(action)}
        dests = [action.dest.split(".") for action in self._actions]
        names = {".".join(keys[:length]) for keys in dests for length in range(1, len(keys))}
        for name in sorted(names - typed):
            value = tree
            for key in name.split("."):
                value = value.get(key, {}) if isinstance(value, dict) else {}
            if not isinstance(value, dict | str):
                given = "is empty" if value is None else f"is {value!r} and no section"
                raise ConfigError(
                    f"{where}: {name} {given}; give it keys, indented below, or leave it out."
                )

    def instantiate(self, namespace: Namespace, *args: Any, **kwargs: Any) -> Namespace:
        """Build the objects; some errors of their classes become `ConfigError`s.

        These are errors of a class in a union of types; of a class that cannot be called like
        others of its kind, lacks an abstract method, or calls its base wrongly; and a `ValueError`
        that the constructor of a user's own class raises.
        """
        try:
            return super().instantiate(namespace, *args, **kwargs)
        except ValueError as error:
            if objection := union_reason(str(error)) or refusal(error):
                raise ConfigError(objection) from error
            raise
        except (TypeError, AttributeError) as error:
            if (objection := constructor_reason(error)) is None:  # a bug in a constructor's code
                raise
            raise ConfigError(objection) from error


def rewritten(message: str, parser: ArgumentParser) -> str:
    """Reduce a message of jsonargparse to one line that names key, value and remedy."""
    if lost := re.search(r'(?:key "([^"]*)")?[^"]*No module named \'(.*?)\'', message, re.DOTALL):
        where = f"{lost[1]}: " if lost[1] else ""
        return f"{where}Python finds no module {lost[2]!r}; {MODULES}."
    if objection := union_reason(message):
        return objection
    # jsonargparse first tries a class path as a file; that it is not a file says nothing.
    lines = [line.strip(" -") for line in message.splitlines() if "Expected a path but" not in line]
    text = " ".join(line for line in lines if line)
    text = re.sub(r'^(Parser key "config": )+', "", text)
    text = re.sub(r"^Call to compute_fn .*? failed: ", "", text)
    for pattern, rewrite in REWRITES:
        if match := re.match(pattern, text):
            return rewrite(match, parser)
    return text


def union_reason(message: str) -> str | None:
    """What is wrong with a value that fits none of several types.

    It is the first objection that does not concern the value's type; None for other messages.
    """
    text = " ".join(message.split())
    match = re.match(r'(?:Parser key "(.*?)": )?.*?Does not validate against any of .*', text)
    objection = re.search(rf"- (?!{ABOUT_TYPES})(.*?)(?= - | Given value)", text)
    if match is None or objection is None:
        return None
    said = re.sub(NO_CLASS, r"there is no class \1; mend its path.", objection[1])
    return f"{match[1]}: {said}" if match[1] else said


def constructor_reason(error: TypeError | AttributeError) -> str | None:
    """What is wrong with how a class is made, called or calls its base; None for other errors."""
    if raised_by(error, "jsonargparse", "tabicl_linear.training"):  # where a task checks its parts
        return (
            f"{error}; docs/extending.md says what a class of its kind is made from and has "
            "to define."
        )
    frames = walk_tb(error.__traceback__)
    called = [(frame, line) for frame, line in frames if frame.f_code.co_name == "__init__"]
    # Messages of Python and of torch.nn.Module about wrong calls of a constructor contain this.
    if not called or "__init__() " not in f"{error} ":
        return None
    frame, line = called[-1]
    if frame.f_globals["__name__"].startswith("tabicl_linear."):
        return None
    return (
        f"{frame.f_code.co_filename}, line {line}: {error}; a class first calls super().__init__ "
        "with what its base is made from (docs/extending.md)."
    )


def refusal(error: ValueError) -> str | None:
    """A line with a remedy for an error that a constructor of a user's own class raises itself.

    None for an error in code that the constructor calls, whose traceback says more.
    """
    frames = list(walk_tb(error.__traceback__))
    modules = {f.f_globals["__name__"] for f, _ in frames if f.f_code.co_name == "__init__"}
    frame, line = frames[-1]
    module = frame.f_globals["__name__"]
    if module not in modules or module.startswith(PACKAGES):
        return None
    return (
        f"{frame.f_code.co_filename}, line {line}: {one_line(error).rstrip('.')}; give it other "
        "arguments in the config."
    )


def reason(error: OSError) -> str:
    """The operating system's error and the remedy, in one line."""
    where = "a file or folder" if error.filename is None else error.filename
    remedy = FULL.get(error.errno or 0, "name one that exists and may be written to")
    return f"{where}: {error.strerror or error}; {remedy}."


def raised_by(error: BaseException, *packages: str) -> bool:
    """Whether one of the packages raised the error itself, rather than code that it called."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    module = str(frames[-1].f_globals.get("__name__", "")) if frames else ""
    return module.startswith(tuple(f"{package}." for package in packages))


def names_itself(option: str) -> bool:
    """Whether an option or its value is YAML that contains itself: the parser would hang on it."""
    for text in (option, option.partition("=")[2]) if "&" in option and "*" in option else ():
        with suppress(yaml.YAMLError):
            if contains_itself(yaml.safe_load(text)):
                return True
    return False


def undecodable(arguments: Sequence[str]) -> str | None:
    """The first file on a command line that is not UTF-8; None if there is none."""
    for argument in arguments:
        path = Path(argument.rpartition("=")[2])
        try:
            if path.is_file():
                path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return str(path)
        except (OSError, ValueError):  # not a path, but the text of a config, which may be long
            continue
    return None


def _without_type_or_default(class_type: type) -> set[str]:
    parameters = inspect.signature(class_type.__init__).parameters.values()  # type: ignore[misc]
    return {p.name for p in parameters if p.default is p.empty and p.annotation is p.empty}


def _check_class_paths(tree: Any, where: str) -> None:
    """Raise `ConfigError` for a class path that is no text, at any depth of a config."""
    items = enumerate(tree) if isinstance(tree, list) else ()
    for key, value in tree.items() if isinstance(tree, dict) else items:
        if key == "class_path" and not isinstance(value, str):
            raise ConfigError(
                f"{where}class_path is {value!r} and no text; give module and name of a class, as "
                "in tabicl_linear.mixers.delta.DeltaNet."
            )
        _check_class_paths(value, f"{where}{key}.")


def _missing(names: str, parser: ArgumentParser) -> str:
    described = parser.described if isinstance(parser, OneLineParser) else None
    if described is None:
        return f"the following options are required: {names}; {HELP}."
    first = names.partition(",")[0]
    return (
        f"{_name(described)} cannot be made without {names}; give it "
        f"beside class_path, as in init_args: {{{first}: VALUE}}, or the class a default for it."
    )


def _unknown(option: str, parser: ArgumentParser) -> str:
    key = option.lstrip("-").split("=")[0].split()[0]
    if isinstance(parser, OneLineParser) and parser.described is not None:
        has = f"it has {', '.join(parser.arguments)}" if parser.arguments else "it has none"
        return f"{_name(parser.described)} has no argument {key.partition('.')[0]!r}; {has}."
    place, _, name = key.rpartition(".")
    if place == "model.architecture" and name in former_options.REMEDIES:
        return former_options.remedy(name)
    names = [name.lstrip("-") for name in parser._option_string_actions]
    # A misspelt class path is not meant as a request for help.
    names = [name for name in names if not name.endswith(".help")]
    close = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {close[0]}?" if close and ".init_args." not in key else f"{HELP}."
    return f"Unknown option or config key {option!r}; {hint}"


def _name(described: type) -> str:
    return f"{described.__module__}.{described.__qualname__}"


def _example(key: str, parser: ArgumentParser) -> str:
    default = parser.get_defaults().get(key)
    if default is None:
        return HELP
    return f"such as {default['class_path']}"


def _no_class(match: re.Match[str], parser: ArgumentParser) -> str:
    key, value = match.groups()
    # jsonargparse shows `--model.mixer.class_path VALUE` as a Namespace.
    value = re.sub(r"Namespace\(class_path='(.*?)'.*", r"\1", value)
    return f"{key}={value}: no such class; give a class path, {_example(key, parser)}."


def _other_class(match: re.Match[str], parser: ArgumentParser) -> str:
    key, value, base = match["key"], match["value"], match["base"]
    return f"{key}={value}: no subclass of {base}; give a class path, {_example(key, parser)}."


def _abstract(match: re.Match[str], parser: ArgumentParser) -> str:
    key, path = match[1], match[2] or match[3]
    module, _, name = path.rpartition(".")
    lacking = ", ".join(sorted(vars(sys.modules[module])[name].__abstractmethods__))
    return f"{key}: {path} is abstract; it has to define {lacking} (docs/extending.md)."


def _wrong_value(match: re.Match[str], parser: ArgumentParser) -> str:
    key, expected, value = match.groups()
    readable = re.sub(r"<class '(.*?)'>|typing[.]", r"\1", expected)
    return f"{key}={value}: expected {readable}."


REWRITES: list[tuple[str, Callable[[re.Match[str], ArgumentParser], str]]] = [
    (r"the following arguments are required: (.*)", lambda m, p: _missing(m[1], p)),
    # Messages of a class's own parser, which are one line already.
    (
        r'Parser key "(.*?)": '
        r"(\S+ (?:cannot be made without|has no argument) .*|\w+=.*: expected .*)",
        lambda m, p: f"{m[1]}: {m[2]}",
    ),
    (r"unrecognized arguments: (.*)", lambda m, p: _unknown(m[1], p)),
    (r"Group '(.*?)' does not accept option '(.*?)'", lambda m, p: _unknown(f"{m[1]}.{m[2]}", p)),
    (r"Subcommand '.*?' does not accept option '(.*?)'", lambda m, p: _unknown(m[1], p)),
    (r"Option '(.*?)' is not accepted", lambda m, p: _unknown(m[1], p)),
    (
        r'Linked "(.*?)" must be given via "(.*?)"',
        lambda m, p: f"{m[1]} follows {m[2]}; set {m[2]} instead.",
    ),
    (
        r"File does not exist: '(.*)'",
        lambda m, p: f"--config {m[1]}: no such file; give the path of a YAML file.",
    ),
    (
        r"Unexpected config: (.*)",
        lambda m, p: f"--config {m[1]}: no config; give a YAML file with keys such as model, data.",
    ),
    (r"while (?:parsing|scanning) .*", lambda m, p: f"--config is not valid YAML: {m[0]}"),
    (r'Parser key "(.*?)": Expected a dot import path string: (.*)', _no_class),
    (r'Parser key "(.*?)": .*has no attribute .*Got value: (.*)', _no_class),
    (rf'Parser key "(.*?)": {NO_CLASS}', _no_class),
    (
        r'Parser key "(?P<key>.*?)": Not a valid subclass of (?P<base>\w+)\. '
        r"Got value: (?P<value>.*?) Subclass types",
        _other_class,
    ),
    (
        r"Parser key \"(?P<key>.*?)\": .*Expected '(?P<value>.*?)' to be a subclass of "
        r"(?:<class '|Union\[)?(?P<base>\w+)",
        _other_class,
    ),
    (
        r'Parser key "(.*?)": .*Expected an instantiatable class, but (?:(\S+) is abstract|'
        r"is abstract.*(?:Given value: |class_path=')([\w.]+))",
        _abstract,
    ),
    # Of a class that is made later: jsonargparse asks for a function that returns it.
    (
        r'Parser key "(?P<key>.*?)": Type .*?(?P<base>\w+)(?:, [\w.]+\])?\] expects a function or '
        r"a callable class: (?:Unexpected|Expected) .*Got value: (?P<value>.*)",
        _other_class,
    ),
    (
        r'Parser key "(.*?)": Type .*a callable class: (cannot import name .*)\. Got value: (.*)',
        lambda m, p: f"{m[1]}: {m[3]} cannot be imported: {m[2]}; mend the file that imports it.",
    ),
    (r'Parser key "(.*?)": .*Subtypes: \[(.*)\] Errors: .*Given value: (.*)', _wrong_value),
    (r'Parser key "(.*?)": Expected an? (.*?)\.? Got value: (.*)', _wrong_value),
    # Errors that a module raises while it is imported.
    (r'Parser key "(.*?)": (.*)', lambda m, p: f"{m[1]}: {m[2]}"),
]
"""Patterns of jsonargparse's messages and their replacements; the first match is used."""

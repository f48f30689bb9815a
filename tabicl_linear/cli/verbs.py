"""The command line: a table of verbs and their functions; only the module that runs is imported."""

import errno
import os
import sys
from pkgutil import resolve_name
from typing import NamedTuple

from tabicl_linear._version import __version__
from tabicl_linear.cli.extras import TRAIN, require
from tabicl_linear.cli.outputs import say
from tabicl_linear.errors import CheckpointError, ConfigError, DataError, caller, one_line
from tabicl_linear.signals import ended_at_once


class Verb(NamedTuple):
    """A verb of the command line.

    Attributes:
        function: `module:name` in this package. The function takes the options, returns the exit
            code, and raises an error of `tabicl_linear.errors` for bad input.
        what: What the verb does, for the help.
        extra: Optional dependencies that the module imports (`tabicl_linear.cli.extras`), if any.
    """

    function: str
    what: str
    extra: str | None = None


VERBS = {
    "fit": Verb(
        "training_options:fit",
        "pretrain a model on synthetic tables, or resume with --ckpt_path",
        TRAIN,
    ),
    "validate": Verb(
        "training_options:validate", "score a checkpoint on the synthetic validation set", TRAIN
    ),
    "test": Verb("training_options:test", "score a checkpoint on a second synthetic set", TRAIN),
    "predict": Verb("predict:main", "classify the rows of a table, given a labelled one"),
    "inspect": Verb(
        "inspect_options:main", "show what states and write rates of a checkpoint do", TRAIN
    ),
    "export": Verb("export:main", "write a checkpoint's model as one safetensors file"),
    "evaluate": Verb("evaluate:main", "score models and baselines on real benchmarks"),
    "report": Verb("report:main", "compare models on benchmarks: statistics, tables, one page"),
    "bench": Verb(
        "bench:main", "measure prior, kernels, training and inference on this machine", TRAIN
    ),
    "lengths": Verb(
        "lengths:main", "score models on contexts longer than they were trained on", TRAIN
    ),
    "oracle": Verb("oracle:main", "optimise the states of a model: how good could they be?", TRAIN),
    "models": Verb("models:main", "list every trained model of the paper with its size", TRAIN),
}


NO_PATHS = (errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of paths that no file can have, which asking whether there is one raises already."""


def main(argv: list[str] | None = None) -> int:
    """Run a verb and return its exit code: 2, after a line on standard error, for bad input."""
    # OpenMP reads these when torch loads. Threads that spin while they wait can cost a factor of
    # ten on a busy machine, threads that sleep at once a factor of two on a quiet one: so they
    # spin briefly, then sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    verb, *options = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if verb in ("-h", "--help"):
        sys.stdout.write(usage())
        return 0
    if verb == "--version":
        sys.stdout.write(f"tabicl-linear {__version__}\n")
        return 0
    try:
        if verb not in VERBS:
            raise ConfigError(f"no such verb; use one of {', '.join(VERBS)}.")
        entry = VERBS[verb]
        if entry.extra is not None:
            require(entry.extra, verb)
        with ended_at_once():
            function = resolve_name(f"{__package__}.{entry.function}")
        code: int = function(options)
        return code
    except (ConfigError, CheckpointError, DataError) as error:
        place = caller(error)
        say(one_line(error) + (f" (called in {place})" if place else ""), verb)
        return 2
    except OSError as error:
        if error.errno not in NO_PATHS or error.filename is None:
            raise
        say(f"{error.filename}: {error.strerror}; give another path.", verb)
        return 2
    except KeyboardInterrupt:
        return 130


def usage() -> str:
    """The help text: a line for each verb."""
    first = "usage: tabicl-linear VERB [options]     (tabicl-linear VERB --help for its options)"
    lines = [f"  {name:<10}{verb.what}" for name, verb in VERBS.items()]
    return "\n".join([first, "", *lines, "", "  --version prints the version", ""])

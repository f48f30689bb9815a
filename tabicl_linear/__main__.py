"""The command line: picks the verb, and imports only what that verb needs."""

import os
import sys
from collections.abc import Callable

from tabicl_linear._version import __version__
from tabicl_linear.errors import CheckpointError, ConfigError, DataError


def main(argv: list[str] | None = None) -> int:
    """Run a verb and return the exit code: 2 for bad input, with one line on standard error."""
    # Before torch loads: threads that wait by spinning can cost a factor of ten on a busy machine,
    # threads that sleep at once a factor of two on a quiet one. Spin briefly, then sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    arguments = sys.argv[1:] if argv is None else argv
    verb = arguments[0] if arguments else "--help"
    if verb in ("-h", "--help"):
        sys.stdout.write(usage())
        return 0
    if verb == "--version":
        sys.stdout.write(f"tabicl-linear {__version__}\n")
        return 0
    try:
        if verb not in VERBS:
            raise ConfigError(f"no such verb; use one of {', '.join(VERBS)}.")
        return VERBS[verb][1](arguments)
    except (ConfigError, CheckpointError, DataError) as error:
        sys.stderr.write(f"tabicl-linear {verb}: {' '.join(str(error).split())}\n")
        return 2
    except KeyboardInterrupt:
        return 130


def usage() -> str:
    """The verbs, one line each."""
    lines = [f"  {verb:<10}{what}" for verb, (what, _) in VERBS.items()]
    return "\n".join(
        [
            "usage: tabicl-linear VERB [options]     (tabicl-linear VERB --help for its options)",
            "",
            *lines,
            "",
            "  --version prints the version",
            "",
        ]
    )


def _train(arguments: list[str]) -> int:
    from tabicl_linear.cli.training import run

    return run(arguments)


def _predict(arguments: list[str]) -> int:
    from tabicl_linear.cli.predict import main as predict

    return predict(arguments[1:])


def _export(arguments: list[str]) -> int:
    from tabicl_linear.cli.export import main as export

    return export(arguments[1:])


def _models(arguments: list[str]) -> int:
    from tabicl_linear.cli.models import main as models

    return models(arguments[1:])


def _bench(arguments: list[str]) -> int:
    from tabicl_linear.cli.bench import main as bench

    return bench(arguments[1:])


VERBS: dict[str, tuple[str, Callable[[list[str]], int]]] = {
    "fit": ("pretrain a model on synthetic tables, or resume with --ckpt_path", _train),
    "validate": ("score a checkpoint on the synthetic validation set", _train),
    "test": ("score a checkpoint on a second synthetic set", _train),
    "predict": ("classify the rows of a table, given a labelled one", _predict),
    "export": ("write a checkpoint's model as one safetensors file", _export),
    "bench": ("measure prior, kernels, training and inference on this machine", _bench),
    "models": ("list every trained model of the paper with its size", _models),
}

if __name__ == "__main__":
    sys.exit(main())

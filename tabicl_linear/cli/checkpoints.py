"""Checkpoints on a command line: their names, checksums, models and devices."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tabicl_linear import files
from tabicl_linear.cli.parser import count
from tabicl_linear.errors import CheckpointError, ConfigError, counted
from tabicl_linear.shipped import checkpoint_path
from tabicl_linear.signals import ended_at_once

if TYPE_CHECKING:
    from tabicl_linear.model import InContextModel


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add the options that name checkpoints."""
    add = parser.add_argument
    add(
        "--checkpoint",
        type=checkpoint_path,
        nargs="+",
        required=True,
        metavar="CKPT",
        help="checkpoints or exports of the models, or default for the weights of the package",
    )
    add("--names", nargs="+", metavar="NAME", help="names of the models (default: from paths)")


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Add the options for the device, threads, and trust in code outside the package."""
    add = parser.add_argument
    add("--device", default="cpu", help="cpu (the default) or cuda")
    add("--threads", type=count, help="threads of PyTorch (default: its own choice)")
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser, then: str = "build models from classes") -> None:
    """Add `--trust-code`, which allows code outside the package; `then` completes its help."""
    help_text = f"also {then} outside tabicl_linear that checkpoints name"
    parser.add_argument("--trust-code", action="store_true", help=help_text)


def named(paths: Sequence[Path], names: Sequence[str] | None = None) -> dict[str, Path]:
    """Map names to checkpoints; without `names`, each is named by the end of its path.

    As many folders are part of such a name as it takes to tell the checkpoints apart.

    Raises:
        ConfigError: A name occurs twice, or the numbers of names and checkpoints differ.
    """
    if names is None:
        twice = [str(path) for path in paths if paths.count(path) > 1]
        if twice:
            raise ConfigError(f"{twice[0]} is given twice: give each checkpoint once.")
        names = _short_names(paths)
    if len(names) != len(paths):
        raise ConfigError(
            f"--names gives {counted(len(names), 'name')} for {counted(len(paths), 'checkpoint')}."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"the name {twice[0]!r} occurs twice: give each model once, and a name of its own."
        )
    return dict(zip(names, paths, strict=True))


def checksum(path: Path) -> str:
    """SHA-256 of a file; raises `CheckpointError` if it cannot be read."""
    try:
        return files.checksum(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def loaded(paths: Mapping[str, Path], arguments: argparse.Namespace) -> "dict[str, InContextModel]":
    """Load the models of checkpoints, on the device that the options of `add_placement` name."""
    with ended_at_once():
        import torch

        from tabicl_linear.checkpoint import load_model
        from tabicl_linear.estimator.devices import resolved_device

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    trust_code = arguments.trust_code
    return {
        name: load_model(path, trust_code=trust_code).to(resolved_device(arguments.device))
        for name, path in paths.items()
    }


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ; `run/last.ckpt` counts as `run`."""
    parts = [list(path.absolute().with_suffix("").parts) for path in paths]
    parts = [names[:-1] if names[-1] == "last" else names for names in parts]
    for length in range(1, max(map(len, parts)) + 1):
        names = [str(Path(*name[-length:])) for name in parts]
        if len(set(names)) == len(names):
            return names
    return names

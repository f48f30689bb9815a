"""What is compared: models of this project and baselines, by the names of a command line."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from sklearn.base import ClassifierMixin

from tabicl_linear.checkpoint import load_model
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.estimator.classifier import TabICLLinearClassifier
from tabicl_linear.estimator.plan import EnsembleName, checked_plan
from tabicl_linear.evaluation.arguments import identified, read_arguments
from tabicl_linear.evaluation.baselines import BASELINES, NOT_SERVED, Baseline, baseline_version
from tabicl_linear.evaluation.own_baseline import identity, own_baseline
from tabicl_linear.evaluation.protocol import BenchmarkTable
from tabicl_linear.shipped import WEIGHTS, checkpoint_path

NAME_LENGTH = 100
"""Most letters of a name; files hold it beside those of a table and a fold."""
DECIDED_ELSEWHERE = {"model", "n_jobs", "ensemble"}
"""Arguments of a classifier that options of the command decide."""


@dataclass(frozen=True)
class Candidate:
    """A classifier that is not made yet.

    Attributes:
        name: In the results.
        identity: Of what decides its scores: a checksum of its file with `arguments`, or
            `baseline_version`, or that of `own_baseline`.
        kind: "model" for one of this project, or the name or import path of a baseline.
        path: File of its weights, where it has one, or the name of shipped ones.
        ensemble: Preset of a model's ensemble.
        arguments: Others of a model's `TabICLLinearClassifier`, by name.
        trust_code: Whether the file may name classes outside tabicl_linear.
    """

    name: str
    identity: str
    kind: str
    path: Path | str | None = None
    ensemble: EnsembleName = "default"
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    trust_code: bool = False

    def make(self, threads: int | None) -> ClassifierMixin:
        """An unfitted classifier that uses so many threads."""
        if self.kind == "model":
            assert self.path is not None
            model = load_model(self.path, trust_code=True) if self.trust_code else self.path
            given: dict[str, Any] = {"n_jobs": threads, "ensemble": self.ensemble, **self.arguments}
            return TabICLLinearClassifier(model, **given)
        weights = () if self.path is None else (str(self.path),)
        return _of_kind(self.kind).make(*weights, threads=threads)

    def sees(self, table: BenchmarkTable) -> pd.DataFrame:
        """The columns as it is given them."""
        if self.kind == "model" or _of_kind(self.kind).reads_categories:
            return table.declared()
        return table.x


def candidates(
    models: Sequence[str],
    baselines: Sequence[str],
    ensemble: EnsembleName,
    arguments: Sequence[Sequence[str]] = (),
    *,
    trust_code: bool = False,
) -> tuple[Candidate, ...]:
    """Candidates of a command line.

    Args:
        models: "default", PATH or NAME=PATH.
        baselines: Names of `BASELINES`, with ":PATH" behind those that need weights, or
            `module.Class` of others.
        ensemble: Preset of the models' ensembles.
        arguments: For each model that gets some: its name, then NAME=VALUE of each argument.
        trust_code: Whether files of models may name classes outside tabicl_linear.

    Raises:
        ConfigError: None at all, two of one name, an unknown or uninstalled baseline, one
            without its weights, arguments of no model or that its classifier does not take, or a
            file that names what it may name with `trust_code` alone.
        CheckpointError: A model that cannot be loaded.
    """
    competitors = [_model(named, ensemble, trust_code) for named in models]
    competitors += [_baseline(named) for named in baselines]
    names = [candidate.name for candidate in competitors]
    if not names:
        raise ConfigError("nothing to evaluate: give --model or --baseline.")
    long = next((name for name in names if len(quote(name)) > NAME_LENGTH), None)
    if long is not None:
        raise ConfigError(
            f"a model of the name {long[:40]}...: files of results are named after it; give a name "
            f"of at most {NAME_LENGTH} letters by --model NAME=PATH."
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"two models of the name {twice}: tell them apart by --model NAME=PATH; name a "
            "baseline once."
        )
    for model, *texts in arguments:
        if model not in names[: len(models)]:
            raise ConfigError(
                f"--arguments {model}: give one of --model: {', '.join(names[: len(models)])}."
            )
        place = names.index(model)
        competitors[place] = _with_arguments(competitors[place], texts)
    return tuple(competitors)


def _with_arguments(candidate: Candidate, texts: Sequence[str]) -> Candidate:
    defaults = TabICLLinearClassifier().get_params()
    parameters = set(defaults) - DECIDED_ELSEWHERE
    values = {**candidate.arguments, **read_arguments(candidate.name, texts, parameters)}
    try:  # as `fit` of every trial would
        checked_plan({**defaults, **values})
    except ConfigError as error:
        raise ConfigError(f"--arguments {candidate.name}: {error}") from error
    assert candidate.path is not None
    identity = identified(_checksum(checkpoint_path(candidate.path)), values)
    return replace(candidate, identity=identity, arguments=values)


def _model(named: str, ensemble: EnsembleName, trust_code: bool) -> Candidate:
    # Names of folders and files may hold "=", as those of Lightning's checkpoints do. Unlike
    # `Path.is_file`, this says no where a name is longer than the system takes.
    is_path = "=" not in named or os.path.isfile(checkpoint_path(named))
    name, weights = ("", named) if is_path else named.split("=", 1)
    path = checkpoint_path(weights)
    if not os.path.isfile(path):
        raise CheckpointError(f"--model {named}: there is no file {path}.")
    # Whether it can be loaded is better known now than in the first fold.
    load_model(path, trust_code=trust_code)
    name = name or (named if named in WEIGHTS else path.stem)
    if weights not in WEIGHTS:
        return Candidate(name, _checksum(path), "model", path, ensemble, trust_code=trust_code)
    # By its name the default predicts by trees as well, by its path it is the network alone.
    arguments = {"trees": "auto"}
    identity = identified(_checksum(path), arguments)
    return Candidate(name, identity, "model", weights, ensemble, arguments)


def _of_kind(kind: str) -> Baseline:
    return BASELINES[kind] if kind in BASELINES else own_baseline(kind)


def _baseline(named: str) -> Candidate:
    kind, _, weights = named.partition(":")
    if kind in NOT_SERVED:
        raise ConfigError(f"--baseline {named}: {NOT_SERVED[kind]}")
    if kind not in BASELINES and "." in named:
        return Candidate(named, identity(named), named)
    if kind not in BASELINES:
        raise ConfigError(
            f"--baseline {named}: give one of {', '.join(BASELINES)}, or module.Class of your own."
        )
    baseline = BASELINES[kind]
    version = f"{baseline.package} {baseline_version(kind)}"
    if not baseline.has_weights:
        if weights:
            raise ConfigError(f"--baseline {named}: it has no weights; give {kind}.")
        return Candidate(kind, version, kind)
    if not Path(weights).is_file():
        raise ConfigError(
            f"--baseline {named}: give {kind}:PATH with the file of its weights; nothing is "
            "downloaded."
        )
    return Candidate(kind, f"{version}, {_checksum(Path(weights))}", kind, Path(weights))


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

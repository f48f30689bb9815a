"""The classifiers to compare: models of this project and baselines, named by a command line."""

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
from tabicl_linear.files import checksum
from tabicl_linear.shipped import WEIGHTS, checkpoint_path

NAME_LENGTH = 100
"""Most letters of a name, which is part of file names, with a table's name and a fold."""
DECIDED_ELSEWHERE = {"model", "n_jobs", "ensemble"}
"""Arguments of the classifier that other options of the command set."""


@dataclass(frozen=True)
class Candidate:
    """A classifier that has not been made yet.

    Attributes:
        name: Name in the results.
        identity: Identifies what its scores depend on. For a model, the checksum of its file, with
            `arguments`; for a baseline, its `baseline_version`, with the checksum of its weights
            if it has any; for a baseline of the user's own, `own_baseline.identity`.
        kind: "model" for a model of this project, or else the name or import path of a baseline.
        path: File of its weights, or the name of weights in the package; None without weights.
        ensemble: Preset of a model's ensemble.
        arguments: Further arguments of a model's `TabICLLinearClassifier`, by name.
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
        """Make the unfitted classifier, which uses this number of threads (None: the default)."""
        if self.kind == "model":
            assert self.path is not None
            model = load_model(self.path, trust_code=True) if self.trust_code else self.path
            given: dict[str, Any] = {"n_jobs": threads, "ensemble": self.ensemble, **self.arguments}
            return TabICLLinearClassifier(model, **given)
        weights = () if self.path is None else (str(self.path),)
        return _of_kind(self.kind).make(*weights, threads=threads)

    def sees(self, table: BenchmarkTable) -> pd.DataFrame:
        """The columns of a table in the form that the classifier gets."""
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
    """The candidates that a command line names.

    Args:
        models: "default", PATH or NAME=PATH each.
        baselines: Names in `BASELINES`, followed by ":PATH" if they need weights, or `module.Class`
            of a baseline of the user's own.
        ensemble: Preset of the models' ensembles.
        arguments: For some models, a list of the name and NAME=VALUE for each argument.
        trust_code: Whether files of models may name classes outside tabicl_linear.

    Raises:
        ConfigError: There are no candidates, or two with one name; a baseline is unknown, not
            installed or without its weights; arguments name no model, or the classifier does not
            take them; or a file names classes that need `trust_code`.
        CheckpointError: A model cannot be loaded.
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
    identity = identified(checksum(checkpoint_path(candidate.path)), values)
    return replace(candidate, identity=identity, arguments=values)


def _model(named: str, ensemble: EnsembleName, trust_code: bool) -> Candidate:
    # Paths may hold "=", as those of Lightning's checkpoints do. `os.path.isfile` is False for
    # names that are too long for the system, where `Path.is_file` raises.
    is_path = "=" not in named or os.path.isfile(checkpoint_path(named))
    name, weights = ("", named) if is_path else named.split("=", 1)
    path = checkpoint_path(weights)
    if not os.path.isfile(path):
        raise CheckpointError(f"--model {named}: there is no file {path}.")
    # An error should come now rather than in the first fold.
    load_model(path, trust_code=trust_code)
    name = name or (named if named in WEIGHTS else path.stem)
    if weights not in WEIGHTS:
        return Candidate(name, checksum(path), "model", path, ensemble, trust_code=trust_code)
    # Named as "default", the weights predict together with trees; by path, the network predicts
    # alone.
    arguments = {"trees": "auto"}
    identity = identified(checksum(path), arguments)
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
    return Candidate(kind, f"{version}, {checksum(Path(weights))}", kind, Path(weights))

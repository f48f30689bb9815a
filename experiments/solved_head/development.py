"""Learned features beside random ones and beside chosen trees, on both development folders.

    python -m experiments.solved_head.development --run runs/solved_head \
        --tables FOLDER --large FOLDER --output runs/solved_head/development

Every table and split is a file of logits, of the queries and of context rows that were left out;
stopped, the same command goes on. Prints means, differences from "trees" (of closed forms: from
"closed") with their intervals over tables, and CPU seconds. Arms without learned features need no
training, and `--base` names where several runs share them.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.special import log_softmax, softmax

from experiments.development.comparison import by_table, difference
from experiments.development.scoring import METRICS
from experiments.development.tables import (
    LARGE,
    Rows,
    Table,
    load_tables,
    with_context_rows,
)
from experiments.solved_head.gate import Gate, described, read_gates
from experiments.solved_head.learners import FIXED, WITH_LEARNED, Arms, trained
from experiments.solved_head.network import LearnedFeatures
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.learners.chosen_trees.cross_fitting import MAX_COLUMNS
from tabicl_linear.estimator.members.ensemble import Encoded, fit_ensemble
from tabicl_linear.evaluation import metrics
from tabicl_linear.files import written_whole
from tabicl_linear.pages import markdown

PARTS = 8
"""Steps in which the part of the arm with learned features is tried."""
Logits = npt.NDArray[np.float64]


def measure(
    network: LearnedFeatures | None, table: Table, split: tuple[Rows, Rows], path: Path
) -> None:
    """Fit the arms without or with learned features to a table, and write what they say.

    Args:
        network: Makes learned features; None for the arms without.
        table: The table.
        split: Context and query rows.
        path: For logits; CPU seconds of each arm beside it.
    """
    context, queries = split
    plan = TabICLLinearClassifier()._plan()
    classes, codes = np.unique(table.y[context], return_inverse=True)
    columns = plan.new_preprocessor(pairs=True)
    matrix = columns.fit_transform(table.x.iloc[context], codes)
    learner = Arms(network, len(classes), MAX_COLUMNS)
    members = -(-matrix.shape[1] // MAX_COLUMNS)
    plan = replace(plan, n_estimators=members, softmax_temperature=1.0).drawn()
    rows = Encoded(matrix, codes, columns, classes)
    ensemble = fit_ensemble(learner, rows, plan)
    states = [state for batch in ensemble.states for state in batch.states]
    query_matrix = columns.transform(table.x.iloc[queries])
    outcome: dict[str, Any] = {
        "labels": table.y[queries].astype(str),
        "classes": classes.astype(str),
    }
    for arm in learner.arms:
        learner.arm = arm
        outcome[arm] = ensemble.scores(query_matrix, lambda logits: logits, plan).astype(np.float32)
    for number, state in enumerate(states):
        for name, honest in state.honest.items():
            outcome[f"honest {number} {name}"] = honest.logits.numpy().astype(np.float32)
            outcome[f"honest {number} labels"] = honest.labels.numpy()
    with written_whole(path) as whole, whole.open("wb") as file:
        np.savez(file, **outcome)
    seconds = pd.DataFrame([state.seconds for state in states]).sum().to_dict()
    with written_whole(path.with_suffix(".json")) as whole:
        whole.write_text(json.dumps(seconds))
    print(path.stem, {str(k): round(float(v), 2) for k, v in seconds.items()}, flush=True)


def part_of(honest: tuple[Logits, Logits], labels: npt.NDArray[np.int64], errors: float) -> float:
    """How much the second of two arms counts, by the log-loss of rows that were left out.

    Args:
        honest: Logits of both arms.
        labels: Classes of the rows.
        errors: The least part is taken that is at most so many standard errors worse than the best.
    """
    parts = np.arange(PARTS + 1) / PARTS
    at = np.arange(len(labels)), labels
    mixed = [(1 - part) * honest[0] + part * honest[1] for part in parts]
    losses = np.stack([-log_softmax(logits, axis=1)[at] for logits in mixed])
    lowest = int(losses.mean(1).argmin())
    worse = losses[: lowest + 1] - losses[lowest]
    allowed = errors * worse.std(1) / len(labels) ** 0.5
    return float(parts[int((worse.mean(1) <= allowed).argmax())])


def mixtures(outcome: Mapping[str, Any], gates: Mapping[str, Gate]) -> Iterator[tuple[str, Logits]]:
    """Arms without learned features mixed with others, by rows left out and by gates."""
    members = len(outcome["trees"])
    pairs = [("closed", "closed+learned"), *(("trees", arm) for arm in ("closed", *WITH_LEARNED))]

    def mixed(pair: tuple[str, str], part: Callable[..., float]) -> Logits:
        one, other = (outcome[arm].astype(float) for arm in pair)
        for number in range(members):
            honest = [outcome[f"honest {number} {arm}"].astype(float) for arm in pair]
            share = part(*honest, outcome[f"honest {number} labels"])
            one[number] += share * (other[number] - one[number])
        return one

    for pair in pairs:
        for errors in (0.0, 1.0):
            by_loss = partial(_part_by_loss, errors)
            yield f"{pair[0]} & {pair[1]} ({errors:g} s.e.)", mixed(pair, by_loss)
    for pair in zip(FIXED, WITH_LEARNED, strict=True):
        if pair[1] in gates:
            yield (
                f"{pair[0]} & {pair[1]} (gate)",
                mixed(pair, partial(_part_by_gate, gates[pair[1]])),
            )


def _part_by_loss(errors: float, one: Logits, other: Logits, labels: Any) -> float:
    return part_of((one, other), labels, errors)


def _part_by_gate(gate: Gate, one: Logits, other: Logits, labels: Any) -> float:
    return float(gate.gain(described(one, other, labels)) > 0)


def scored(
    paths: Sequence[Path], table: Table, gates: Mapping[str, Gate]
) -> Iterator[dict[str, Any]]:
    """Scores of all arms and mixtures of them from files of logits."""
    outcome = {name: part for path in paths for name, part in np.load(path).items()}
    every = [(arm, outcome[arm].astype(float)) for arm in (*FIXED, *WITH_LEARNED)]
    for name, logits in [*every, *mixtures(outcome, gates)]:
        scores = metrics.score(
            softmax(logits.mean(0), axis=1),
            outcome["labels"].astype(object),
            outcome["classes"].astype(object),
            is_macro=table.protocol.is_macro,
        )
        of_arm = {score: getattr(scores, score) for score in METRICS}
        yield {"model": name, "fit_seconds": 0.0, "predict_seconds": 0.0} | of_arm


def compared(scores: pd.DataFrame) -> str:
    """Means of all arms for each protocol, and differences over all tables."""
    rows, tables = [], by_table(scores)
    for name in dict.fromkeys(scores["model"]):
        cells = []
        for protocol in dict.fromkeys(scores["protocol"]):
            of_protocol = by_table(scores[scores["protocol"] == protocol])
            cells.append(" / ".join(f"{of_protocol[s, name].mean():.4f}" for s in METRICS))
        against = "closed" if name.startswith("closed") else "trees"
        cells += [str(difference(tables, s, name, against)) for s in METRICS]
        rows.append([name, *cells])
    return markdown(["", "18 tables", "10 larger tables", *METRICS], rows)


def run(arguments: argparse.Namespace) -> str:
    """Measure what is missing; compare all that is there."""
    tables = load_tables(arguments.tables) + load_tables(arguments.large, protocol=LARGE)
    tables = with_context_rows(tables, arguments.context_rows)
    base: Path = arguments.base or arguments.output
    for folder in (base, arguments.output):
        folder.mkdir(parents=True, exist_ok=True)
    network = None if arguments.run is None else trained(arguments.run / "last.ckpt")
    gates = {} if arguments.run is None else read_gates(arguments.run)
    rows, seconds = list[dict[str, Any]](), list[dict[str, float]]()
    for number, table in product(range(arguments.splits), tables):
        name = f"{table.protocol.name}_{table.name}_{number}"
        paths = [base / f"{name}_fixed.npz", arguments.output / f"{name}_learned.npz"]
        is_wanted = arguments.only is None or table.name in arguments.only
        for path, of_path in zip(paths, (None, network), strict=True):
            is_there = path.with_suffix(".json").exists() or (path == paths[1] and network is None)
            if is_wanted and not is_there:
                with warnings.catch_warnings(), torch.inference_mode():
                    warnings.simplefilter("ignore")
                    measure(of_path, table, table.splits()[number], path)
        if all(path.with_suffix(".json").exists() for path in paths):
            about = {"protocol": table.protocol.name, "table": table.name, "split": number}
            rows += [about | row for row in scored(paths, table, gates)]
            clocks = [json.loads(path.with_suffix(".json").read_text()) for path in paths]
            seconds.append(clocks[0] | clocks[1])
    if not rows:
        return "Nothing to compare: give --run."
    mean = pd.DataFrame(seconds).mean().round(2).to_dict()
    scores = pd.DataFrame(rows)
    with written_whole(arguments.output / "scores.csv") as whole:
        scores.to_csv(whole, index=False)
    return f"{compared(scores)}\n\nCPU seconds to fit, mean of {len(seconds)}: {mean}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="folder of a training; none: other arms alone")
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--large", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--context-rows", type=int, help="learn from at most as many rows")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--base", type=Path, help="folder of arms without learned features")
    parser.add_argument("--output", type=Path, required=True)
    torch.set_num_threads(1)
    print(run(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Ends a leg: weights, scores on synthetic and development tables, and a row in the log."""

import argparse
from pathlib import Path

from experiments.development.scoring import development_scores, mean
from experiments.development.tables import VARIABLE, folder_from_environment, load_tables
from experiments.pretrain_default import budget as budgets
from experiments.pretrain_default.budget import Budget
from experiments.pretrain_default.evaluate import evaluate, markdown
from experiments.pretrain_default.legs import Leg, append, describe_hardware, seen
from experiments.pretrain_default.training import newest_checkpoint, newest_step
from tabicl_linear import load_model
from tabicl_linear.checkpoint import export
from tabicl_linear.files import written_whole

WEIGHTS = "default.safetensors"
BUDGET = "budget.json"
DEVELOPMENT = "development.csv"
"""Scores of the weights by table and split."""


def conclude(output: Path, budget: Budget, arguments: argparse.Namespace) -> str:
    """Export and score the decay of a leg, log the leg and end its budget.

    Returns:
        Text to print: scores and files.

    Raises:
        DataError: The development tables or the log of legs cannot be read.
    """
    branch = output / ("decay" if budget.is_decaying else "trunk")
    leg, checkpoint = _describe(output, branch, budget, arguments.device)
    lines = [f"checkpoint   {checkpoint}"]
    if budget.is_decaying:
        scores, text = _score(checkpoint, output / WEIGHTS, arguments)
        leg = leg._replace(**scores)
        lines = [f"\n{text}\n", *lines, f"weights      {output / WEIGHTS}"]
    append(leg, output)
    (output / BUDGET).unlink()
    return "\n".join([*lines, f"legs         {output / 'legs.md'}"])


def abandon(output: Path, arguments: argparse.Namespace) -> None:
    """End a leg that was too short for a decay, and log the time of its trunk."""
    budget = budgets.load(output / BUDGET)
    if budget is not None and newest_step(output / "trunk") > budget.first_step:
        append(_describe(output, output / "trunk", budget, arguments.device)[0], output)
    (output / BUDGET).unlink(missing_ok=True)


def _describe(output: Path, branch: Path, budget: Budget, device: str) -> tuple[Leg, Path]:
    """The leg without scores, and the checkpoint at its end."""
    checkpoint = newest_checkpoint(branch)
    assert checkpoint is not None, f"no checkpoint under {branch} after training"
    leg = Leg(
        hardware=describe_hardware(device),
        minutes=budget.trunk.wall + budget.decay.wall,
        trunk_core_hours=budget.trunk.cpu / 60,
        decay_core_hours=budget.decay.cpu / 60,
        steps=newest_step(output / "trunk"),
        decay_steps=budget.decay_steps or 0,
        **seen(checkpoint),
    )
    return leg, checkpoint


def _score(
    checkpoint: Path, weights: Path, arguments: argparse.Namespace
) -> tuple[dict[str, float], str]:
    """Export and score; return the scores of a leg, and lines to print."""
    table = evaluate(
        load_model(checkpoint),
        lengths=tuple(arguments.lengths),
        tasks=arguments.tasks,
        device=arguments.device,
    )
    export(checkpoint, weights)
    scores = {name: float(table.loc["mean", name]) for name in ("loss", "roc_auc")}
    lines = [markdown(table), ""]
    if folder_from_environment() is None:
        lines.append(f"development  not scored: {VARIABLE} names no folder of tables")
    else:
        tables = load_tables()
        rows = development_scores(weights, tables)
        with written_whole(weights.parent / DEVELOPMENT) as partial:
            rows.to_csv(partial, index=False)
        means = mean(rows)
        scores |= {f"development_{name}": value for name, value in means._asdict().items()}
        lines.append(
            f"development  ROC-AUC {means.roc_auc:.4f}, accuracy {means.accuracy:.4f}, log-loss "
            f"{means.log_loss:.4f} (means over {len(tables)} tables)"
        )
    return scores, "\n".join(lines)

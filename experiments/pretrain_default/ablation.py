"""What the closed form does alone, what the network does alone, and what both do together.

    python -m experiments.pretrain_default.ablation runs/default/default.safetensors \
        --output runs/ablation

All three come from one checkpoint with ridge inputs: the closed form is the model with zeros in
the last layers of head and skip, as before training; the network alone is shown the class shares of
the context instead of predictions. They are scored on the development tables and on the fixed
synthetic validation tasks. Stopped anywhere, the same command goes on.
"""

import argparse
import hashlib
import sys
from pathlib import Path

import torch

from experiments.development.comparison import markdown
from experiments.development.results import Candidate, Results
from experiments.development.tables import VARIABLE, load_tables
from experiments.pretrain_default.evaluate import CONTEXT_ROWS, SCORES, TASKS, evaluate
from tabicl_linear import TabICLLinearClassifier, load_model, pages
from tabicl_linear.errors import CheckpointError, ConfigError, DataError
from tabicl_linear.files import written_whole
from tabicl_linear.model import InContextModel

CLOSED_FORM, NETWORK, BOTH = "closed form", "network", "both"


def variants(path: Path) -> dict[str, InContextModel]:
    """The three models of a checkpoint or export, by name.

    Raises:
        CheckpointError: It cannot be loaded.
        ConfigError: Its model has no ridge inputs.
    """
    closed_form, both = load_model(path), load_model(path)
    if closed_form.ridge is None:
        raise ConfigError(f"{path} has no ridge inputs, so there is nothing to take apart.")
    for last in (closed_form.head[-1], closed_form.ridge.skip[-1]):
        for parameter in last.parameters():
            torch.nn.init.zeros_(parameter)
    network = load_model(path, ["model.architecture.ridge_inputs.shown=class_shares"])
    return {CLOSED_FORM: closed_form, NETWORK: network, BOTH: both}


def synthetic(models: dict[str, InContextModel], tasks: int, lengths: tuple[int, ...]) -> str:
    """Mean scores over the synthetic validation tasks, as markdown."""
    rows = []
    for name, model in models.items():
        means = evaluate(model, lengths=lengths, tasks=tasks).loc["mean"]
        rows.append([name, *(f"{means[score]:.4f}" for score in SCORES)])
    return pages.markdown(["synthetic tasks", *SCORES], rows)


def development(
    models: dict[str, InContextModel], path: Path, tables: Path | None, output: Path
) -> str:
    """Means over the development tables and differences from the closed form, as markdown."""
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    candidates = [
        Candidate(name, f"{checksum} {name}", TabICLLinearClassifier(model))
        for name, model in models.items()
    ]
    scores = Results(output / "results.csv").complete(candidates, load_tables(tables))
    return markdown(scores, CLOSED_FORM)


def main(argv: list[str] | None = None) -> int:
    """Print the tables and write them to a file; 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--tasks", type=int, default=TASKS, help="for each length")
    parser.add_argument("--lengths", type=int, nargs="+", default=CONTEXT_ROWS)
    parser.add_argument("--tables", type=Path, help=f"folder of tables, instead of {VARIABLE}")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args(argv)
    try:
        models = variants(arguments.checkpoint)
        arguments.output.mkdir(parents=True, exist_ok=True)
        parts = [
            development(models, arguments.checkpoint, arguments.tables, arguments.output),
            synthetic(models, arguments.tasks, tuple(arguments.lengths)),
        ]
    except (CheckpointError, ConfigError, DataError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    text = "\n\n".join(parts)
    with written_whole(arguments.output / "ablation.md") as partial:
        partial.write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

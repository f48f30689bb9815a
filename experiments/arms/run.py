"""Train arms, each a list of configs, for equal CPU time; score and compare them.

    python -m experiments.arms.run --arm baseline= --arm wide=wide.yaml,muon.yaml \
        --cpu-minutes 20 --seed 0 --output runs/arms

An arm is one leg of `experiments.pretrain_default`, whose configs override that of the default
weights: CPU time of the training process with one thread, with a decay at the end. Arms run one
after the other; if stopped, the same command continues. `--only NAME` trains one of them.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch

from experiments.development.comparison import markdown as compare
from experiments.pretrain_default import legs
from experiments.pretrain_default.conclude import DEVELOPMENT
from experiments.pretrain_default.run import check, make_parser, run_leg
from tabicl_linear import pages
from tabicl_linear.files import written_whole

ARMS = "arms.csv"
KEY = ["arm", "seed", "cpu_minutes"]
SHOWN = ("steps", "datasets", "core_hours", *legs.SCORES)


class Arm(NamedTuple):
    """A name, and configs that override that of the default weights."""

    name: str
    configs: tuple[Path, ...]


def parse_arm(text: str) -> Arm:
    """An arm from NAME=A.yaml,B.yaml; NAME= alone is the default recipe.

    Raises:
        argparse.ArgumentTypeError: The text has another form, or a file does not exist.
    """
    name, equals, files = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text}: give NAME=CONFIG,CONFIG (or NAME= for none)")
    configs = tuple(Path(file) for file in files.split(",") if file)
    for path in configs:
        if not path.is_file():
            raise argparse.ArgumentTypeError(f"{text}: there is no file {path}")
    return Arm(name, configs)


def run_arm(arm: Arm, arguments: argparse.Namespace, folder: Path) -> int:
    """Train and score an arm in its own folder, unless already done; return its exit code."""
    log = folder / legs.LOG
    if log.exists() and legs.read(log)["loss"].notna().any():
        return 0
    leg = argparse.Namespace(**vars(arguments))
    leg.output, leg.config = folder, list(arm.configs)
    print(f"\n# {arm.name}, seed {arguments.seed}", flush=True)
    return run_leg(leg, ["--seed_everything", str(arguments.seed)])


def append(row: dict[str, object], path: Path) -> pd.DataFrame:
    """Add a row to the CSV of all arms, replacing one with the same key; return all rows."""
    rows = pd.DataFrame([row])
    if path.exists():
        rows = pd.concat([pd.read_csv(path), rows]).drop_duplicates(KEY, keep="last")
    with written_whole(path) as partial:
        rows.to_csv(partial, index=False)
    return rows


def markdown(rows: pd.DataFrame) -> str:
    """A row for each arm, in the order of training."""
    names = [*KEY, *SHOWN]
    cells = [
        [f"{row[name]:.4f}" if isinstance(row[name], float) else f"{row[name]}" for name in names]
        for _, row in rows.iterrows()
    ]
    return pages.markdown([name.replace("_", " ") for name in names], cells)


def _folder(arm: Arm, arguments: argparse.Namespace) -> Path:
    length = f"{arguments.cpu_minutes:g}cpu_minutes"
    return Path(arguments.output.resolve() / f"{arm.name}_{length}_seed{arguments.seed}")


def _by_table(arms: list[Arm], arguments: argparse.Namespace) -> pd.DataFrame:
    """Development scores by table and split of the arms that have them."""
    tables = [
        pd.read_csv(path).assign(model=arm.name)
        for arm in arms
        if (path := _folder(arm, arguments) / DEVELOPMENT).exists()
    ]
    return pd.concat(tables) if tables else pd.DataFrame()


def main(argv: list[str] | None = None) -> int:
    """Run the arms; return 0, or the exit code of the first that did not finish."""
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument(
        "--arm", type=parse_arm, action="append", required=True, help="NAME=CONFIG,CONFIG"
    )
    parser.add_argument("--only", help="train only this arm")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and training stream")
    parser.set_defaults(output=Path("runs/arms"), device="cpu")
    parser.epilog = "Of these, --minutes, --steps, --no-decay and --config are refused."
    arguments = parser.parse_args(argv)
    check(parser, arguments)
    arms: list[Arm] = arguments.arm
    names = [arm.name for arm in arms]
    if not arguments.cpu_minutes or arguments.no_decay or arguments.config:
        parser.error("arms take --cpu-minutes, end with a decay and have configs of their own")
    if len(set(names)) < len(names) or arguments.only not in (None, *names):
        parser.error(f"--arm {names}, --only {arguments.only}: give each arm a name of its own")
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    for arm in arms:
        if arguments.only not in (None, arm.name):
            continue
        folder = _folder(arm, arguments)
        code = run_arm(arm, arguments, folder)
        if code:
            return code
        row = dict(zip(KEY, (arm.name, arguments.seed, arguments.cpu_minutes), strict=True))
        last = legs.read(folder / legs.LOG).iloc[-1]
        row["configs"] = ",".join(map(str, arm.configs))
        rows = append(row | {name: last[name] for name in SHOWN}, arguments.output / ARMS)
    print(f"\n{markdown(rows)}\n")
    scores = _by_table(arms, arguments)
    if not scores.empty:
        print(compare(scores, scores["model"].iloc[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

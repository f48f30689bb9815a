"""Learning rates: three for each family, by validation loss after a fifth of the steps.

    python -m experiments.study.rates [ARM ...] --scale small [--store DIR]

The best rates are written into the scale's file by hand, before its arms are trained.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from experiments.pretrain_default.training import OutputInUse
from experiments.study.run import MEASURED
from experiments.study.scale import Scale, check_arms, names
from experiments.study.store import Unit, open_store
from experiments.study.training import Stopped, train
from experiments.study.training_code import TrainingCode
from tabicl_linear.errors import ConfigError
from tabicl_linear.files import written_whole
from tabicl_linear.overlays import laid_over

RATES = (5e-4, 1e-3, 2e-3)
FAMILIES = ["deltanet", "softmax", "linear_causal", "gla", "mamba2", "gated_deltanet"]
SHARE = 5
FILE = "rates.csv"
COLUMNS = ["arm", "rate", "steps", "val_loss", "val_roc_auc", "train_seconds", "commit"]


def trials(scale: Scale, arm: str, code: TrainingCode) -> list[tuple[float, Unit]]:
    """Return each rate with a unit that trains the arm with it, with the first seed."""
    config = scale.config_of(arm)
    steps = config["trainer"]["max_steps"] // SHARE
    short = {"trainer": {"max_steps": steps, "val_check_interval": steps}}
    optimiser = config["model"]["optimizer"]["class_path"]

    def unit(rate: float) -> Unit:
        learner = {"class_path": optimiser, "init_args": {"lr": rate}}
        changed = laid_over(laid_over(config, short), {"model": {"optimizer": learner}})
        return Unit(arm, 0, scale.name, code.digest(changed), code.commit, changed)

    return [(rate, unit(rate)) for rate in RATES]


def main(argv: list[str] | None = None) -> int:
    """Run the trials that have not been run; return 0, 2 for bad input, 3 if stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arms", nargs="*", help=f"arms ({' '.join(FAMILIES)})")
    parser.add_argument("--scale", choices=names(), default="small")
    parser.add_argument("--store", type=Path, help="folder of trials (runs/study/SCALE-rates)")
    parser.add_argument("--measured", type=Path, default=MEASURED)
    arguments = parser.parse_args(argv)
    try:
        check_arms(arguments.arms)
        scale, code = Scale.read(arguments.scale), TrainingCode.of_checkout()
        store = arguments.store or Path(f"runs/study/{scale.name}-rates")
        open_store(store, scale.name, code)
        for arm in arguments.arms or FAMILIES:
            for rate, unit in trials(scale, arm, code):
                record = train(unit, store, "cpu")
                _write({**record, "rate": rate}, arguments.measured / scale.name / FILE)
    except (ConfigError, OutputInUse) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return 3
    return 0


def _write(record: dict[str, object], path: Path) -> None:
    """Add a trial to the file; it replaces an older one of the same arm and rate."""
    rows = pd.DataFrame([{name: record.get(name) for name in COLUMNS}])
    if path.is_file():
        rows = pd.concat([pd.read_csv(path), rows])
    rows = rows.drop_duplicates(["arm", "rate"], keep="last").sort_values(["arm", "rate"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        rows.to_csv(partial, index=False)


if __name__ == "__main__":
    sys.exit(main())

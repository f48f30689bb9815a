"""Pretrain a small DeltaNet on synthetic tables, score real tables, draw two figures.

    python -m experiments.demo.run --output runs/demo

If stopped, the same command continues where it was. Everything is chosen on synthetic data; the
real tables, which come with scikit-learn, are only for reporting.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from experiments.demo.figures import draw_context_sizes, draw_learning_curve
from experiments.demo.scoring import (
    LOADERS,
    bundled_tables,
    score_context_sizes,
    score_tables,
    summary,
)

ROOT = Path(__file__).parents[2]
CHECKPOINT = "last.ckpt"


def pretrain(config: list[Path], root: Path, max_steps: int | None) -> Path:
    """Run `tabicl-linear fit`, or resume a run that was stopped; return its checkpoint."""
    command = [sys.executable, "-m", "tabicl_linear", "fit"]
    for path in config:
        command += ["--config", str(path)]
    command += ["--trainer.default_root_dir", str(root), "--trainer.enable_model_summary", "false"]
    # Other programs may need the cores: minutes on a quiet machine could become many.
    command += ["--thread_count.every_n_steps", "100"]
    if max_steps is not None:
        command += ["--trainer.max_steps", str(max_steps)]
    checkpoint = _newest_checkpoint(root)
    if checkpoint is not None:
        command += ["--ckpt_path", str(checkpoint)]
    subprocess.run(command, check=True, cwd=ROOT)
    checkpoint = _newest_checkpoint(root)
    assert checkpoint is not None, f"no checkpoint under {root} after training"
    return checkpoint


def _newest_checkpoint(root: Path) -> Path | None:
    checkpoints = sorted(
        root.glob(f"version_*/{CHECKPOINT}"), key=lambda path: path.stat().st_mtime
    )
    return checkpoints[-1] if checkpoints else None


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/demo"))
    parser.add_argument(
        "--config", type=Path, action="append", help="instead of configs/quick.yaml"
    )
    parser.add_argument("--max-steps", type=int, help="optimiser steps, instead of the config's")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--tables", nargs="+", choices=list(LOADERS), default=list(LOADERS))
    arguments = parser.parse_args()
    output: Path = arguments.output.resolve()
    config = arguments.config or [ROOT / "configs" / "quick.yaml"]

    print("Pretraining on synthetic tables ...", flush=True)
    try:
        checkpoint = pretrain(config, output, arguments.max_steps)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    draw_learning_curve(checkpoint.parent / "metrics.csv", output / "learning_curve.png")

    print("\nScoring real tables that the model has never seen ...", flush=True)
    tables = bundled_tables(arguments.tables)
    scores = score_tables(checkpoint, tables, folds=arguments.folds)
    scores.to_csv(output / "scores.csv", index=False)
    text = summary(scores)
    (output / "scores.md").write_text(text + "\n")
    print(f"\n{text}\n")

    sizes = score_context_sizes(checkpoint, tables)
    sizes.to_csv(output / "context_sizes.csv", index=False)
    draw_context_sizes(sizes, output / "context_sizes.png")

    shown = arguments.output
    print(f"checkpoint  {checkpoint}")
    print(f"figures     {shown / 'learning_curve.png'}  {shown / 'context_sizes.png'}")
    print(f"tables      {shown / 'scores.md'}  {shown / 'scores.csv'}")
    print(f"curves      {Path(sys.executable).parent / 'tensorboard'} --logdir {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Shows training progress: a bar on a terminal, a line at intervals in a log file."""

import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from tabicl_linear.errors import ConfigError
from tabicl_linear.training.metric_names import DATASETS, LOSS, ROWS

BAR = "{percentage:3.0f}%|{bar:20}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
REFRESH_SECONDS = 0.5


class Progress(ProgressBar):
    """Shows loss, learning rate, time left, and speed if `Throughput` logs it, on standard error.

    After every validation, its scores are printed as a line.

    Args:
        seconds: Seconds between two lines if standard error is not a terminal.

    Raises:
        ConfigError: `seconds` is below 0.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        if not seconds >= 0:
            raise ConfigError(f"progress.seconds={seconds}: give at least 0.")
        super().__init__()
        self.seconds = seconds
        self._enabled = True
        self._bar: tqdm | None = None
        self._first_step = 0
        self._shown_step = 0
        self._began = 0.0
        self._shown_at = 0.0

    def disable(self) -> None:
        """Show nothing; Lightning calls this in all processes but the first."""
        self._enabled = False

    def enable(self) -> None:
        """Show progress again."""
        self._enabled = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar at the step that training starts from."""
        self._first_step = trainer.global_step
        self._began = self._shown_at = time.monotonic()
        if self._enabled and sys.stderr.isatty():
            self._bar = tqdm(
                total=trainer.max_steps,
                initial=trainer.global_step,
                bar_format=BAR,
                dynamic_ncols=True,
                file=sys.stderr,
            )

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Move the bar, or print a line if one is due."""
        now, step = time.monotonic(), trainer.global_step
        if not self._enabled or step == self._shown_step:
            return
        pause = self.seconds if self._bar is None else REFRESH_SECONDS
        if now - self._shown_at < pause and step != trainer.max_steps:
            return
        self._shown_at, self._shown_step = now, step
        text = self._describe(trainer)
        if self._bar is not None:
            self._bar.n = step
            self._bar.set_postfix_str(text)
            return
        line = tqdm.format_meter(
            step,
            trainer.max_steps,
            now - self._began,
            initial=self._first_step,
            postfix=text,
            bar_format=BAR,
        )
        self._print(line)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the scores."""
        if not self._enabled or trainer.sanity_checking:
            return
        scores = {k: v for k, v in trainer.callback_metrics.items() if k.startswith("val/")}
        text = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        self._print(f"step {trainer.global_step}: {text}")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar."""
        self._close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Close the bar, so that further output starts on a new line."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _describe(self, trainer: Trainer) -> str:
        metrics = trainer.progress_bar_metrics
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        parts = [f"loss {metrics[LOSS]:.3f}", f"lr {rate:.2e}"]
        # Speeds are measured only by Throughput, a callback that a Trainer may not have.
        speeds = ((DATASETS, "datasets/s"), (ROWS, "rows/s"))
        parts += [f"{metrics[name]:,.0f} {unit}" for name, unit in speeds if name in metrics]
        return ", ".join(parts)

    def _print(self, text: str) -> None:
        if self._bar is not None:
            tqdm.write(text, file=sys.stderr)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

"""The verbs that train models and score them on synthetic tasks: `fit`, `validate` and `test`."""

import copy
import json
from contextlib import ExitStack
from functools import cached_property, reduce
from operator import getitem
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from tabicl_linear.callbacks.provenance import Provenance
from tabicl_linear.callbacks.run_checkpoint import LAST, RunCheckpoint, StoppedBySignal
from tabicl_linear.cli.launch import (
    Launch,
    LostProcess,
    completed,
    error_of_forked,
    is_first_process,
    limited,
)
from tabicl_linear.cli.outputs import say
from tabicl_linear.cli.process import (
    check_stopped,
    log_lines,
    raise_stopped,
    show_log_lines,
    stderr_dropped_on,
    writer_errors_said_once,
)
from tabicl_linear.cli.resume import GIVEN_ANEW, Resume, option_value
from tabicl_linear.cli.run_folder import RunFolder
from tabicl_linear.cli.trainer_options import (
    as_list,
    check_callbacks,
    make_trainer,
    with_run_loggers,
    with_whole_files,
)
from tabicl_linear.config import LINKS, PROBES, ConfigCLI
from tabicl_linear.config_messages import OBJECTIONS, raised_by, reason
from tabicl_linear.errors import ConfigError
from tabicl_linear.machine import emulates_bfloat16, processor
from tabicl_linear.signals import STOP_SIGNALS, handled
from tabicl_linear.training.after_step import early_end
from tabicl_linear.training.noise import without_noise
from tabicl_linear.training.task import NonFiniteTraining

LIMITS_OF_SCORES = {"validate": "limit_val_batches", "test": "limit_test_batches"}


class PretrainingCLI(ConfigCLI):
    """LightningCLI for `fit`, `validate` and `test`.

    Args:
        args: The verb and its options.
        resume: The checkpoint to resume from or to score, if any.
        held: Receives the lock of the run folder, so that the caller decides how long it is held.
    """

    def __init__(self, args: list[str], *, resume: Resume | None, held: ExitStack) -> None:
        self._verb = args[0]
        self.resume = resume
        self.run_folder: RunFolder | None = None
        self._held = held
        super().__init__(args, run=True)

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The verb, with the arguments of the Trainer's method that the CLI fills in.

        Other verbs are left out, as making their parsers would take a quarter of the start-up time.
        """
        rows = ("train_dataloaders", "val_dataloaders") if self._verb == "fit" else ("dataloaders",)
        return {self._verb: {"model", "datamodule", *rows}}

    @cached_property
    def plain_config(self) -> dict[str, Any]:
        """The config as plain data, without `GIVEN_ANEW` and options linked to others."""
        self._dump_config()
        plain = copy.deepcopy({k: v for k, v in self.config_dump.items() if k not in GIVEN_ANEW})
        for target in LINKS:  # each follows from another option
            *sections, name = target.split(".")
            del reduce(getitem, sections, plain)[name]
        return plain

    def before_instantiate_classes(self) -> None:
        """Raise `ConfigError` for invalid options, before anything is built."""
        super().before_instantiate_classes()
        if self.subcommand is not None and self.resume is None:
            path = self.config[self.subcommand]["ckpt_path"]
            if path is not None:
                raise ConfigError(
                    f"ckpt_path={path} in a config file: give it as --ckpt_path {path}."
                )
        if self.resume is not None:
            self.resume.check(self.plain_config, training=self.subcommand == "fit")
        limit = LIMITS_OF_SCORES.get(self._verb)
        # A run without validation has stored a limit of 0 in its checkpoint.
        if limit is not None and self._get(self.config, "trainer")[limit] == 0:
            raise ConfigError(f"trainer.{limit}=0: nothing would be scored; give 1.0 for all.")

    def instantiate_classes(self) -> None:
        """Build everything, then show which kernels are used."""
        super().instantiate_classes()
        show_log_lines()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The trainer; in `fit` it writes into the run folder."""
        options = {**self._get(self.config_init, "trainer"), **kwargs}
        # As an integer, a number of batches: as a float, 1.0 would mean all of an endless stream.
        options["overfit_batches"] = int(options["overfit_batches"])
        options = completed(options)
        minutes = self._get(self.config_init, "rank_timeout_minutes")
        if minutes is not None:
            options["strategy"] = limited(options["strategy"], minutes)
        callbacks = as_list(options["callbacks"])
        if self.subcommand != "fit":
            options["callbacks"] = [*callbacks, Provenance(self.plain_config)]
            options["logger"] = options["logger"] or False
            return make_trainer(options)
        progress = [] if options["enable_progress_bar"] is False else ["progress"]
        names = ["throughput", "thread_count", *progress, *PROBES]
        options["callbacks"] = callbacks + [self._get(self.config_init, name) for name in names]
        check_callbacks(options["callbacks"])
        if self.resume is not None:
            self.resume.check_averaging(options["callbacks"])
        if options["fast_dev_run"]:
            return make_trainer(options)
        self.run_folder = RunFolder.take(Path(options["default_root_dir"]), self.resume, self._held)
        with self.run_folder.dropped_if_unused():
            return make_trainer(self._into(self.run_folder, options))

    def _into(self, folder: RunFolder, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a trainer that writes its checkpoints, config and logs into a folder."""
        callbacks = [*options["callbacks"], Provenance(self.plain_config, new=folder.is_new)]
        if options["enable_checkpointing"] is not False:
            callbacks.append(self._get(self.config_init, "checkpoint"))
        return {
            **options,
            "default_root_dir": folder.path,
            "callbacks": callbacks,
            "logger": with_run_loggers(options["logger"], folder.path, self.resume),
            "plugins": with_whole_files(options["plugins"]),
        }

    def fit(self, **kwargs: Any) -> None:
        """Print the run folder and the changed options of a resumed run, then train."""
        if self.run_folder is None:
            self.trainer.fit(**kwargs)
            return
        if self.resume is not None:
            for key, stored, given in self.resume.changes(self.plain_config):
                rank_zero_info(f"Resuming with {key}: {stored} -> {given}")
        rank_zero_info(f"Run folder: {self.run_folder.path}")
        on_cpu = self.trainer.strategy.root_device.type == "cpu"
        if on_cpu and self.trainer.precision == "bf16-mixed" and emulates_bfloat16():
            rank_zero_info(
                "precision: bf16-mixed takes several times as long as 32-true here, since "
                f"{processor()} has no instructions for bfloat16."
            )
        with self.run_folder.dropped_if_unused():
            try:
                self._connect()
                self.trainer.fit(**kwargs)
                if reason := early_end(self.trainer):
                    rank_zero_info(reason)
            except RuntimeError as error:
                if self.trainer.world_size > 1 and LostProcess.explains(error):
                    raise LostProcess(error, self._checkpoint()) from error
                raise
            except (ProcessExitedException, ProcessRaisedException) as error:
                check_stopped(error, self.run_folder.path / LAST)
                cause = error_of_forked(error, self._checkpoint())
                if cause is None:
                    raise
                raise cause from error

    def _connect(self) -> None:
        """Connect to the first process, earlier than Lightning does.

        If that fails, PyTorch prints a C++ stack besides raising an error; it is dropped here.
        """
        if Launch.detect() is not None and not is_first_process():
            with stderr_dropped_on(RuntimeError):
                self.trainer.strategy.setup_environment()

    def _checkpoint(self) -> Path | None:
        """The run's `last.ckpt`; None if there is none, or this process cannot tell its folder."""
        callbacks = self.trainer.checkpoint_callbacks
        folders = [each.folder for each in callbacks if isinstance(each, RunCheckpoint)]
        if is_first_process() and self.run_folder is not None:
            folders.append(self.run_folder.path)
        lasts = (folder / LAST for folder in folders if folder is not None)
        return next(filter(Path.exists, lasts), None)


def run(verb: str, options: list[str]) -> int:
    """Train or resume, or score a checkpoint on a synthetic set; return the exit code.

    The code is 0; 1 if a loss or gradient is not finite or a process was lost; 130 after SIGINT;
    143 after SIGTERM.

    Raises:
        ConfigError: The options are invalid, or a file cannot be read or written.
        CheckpointError: The checkpoint cannot be used.
    """
    try:
        stopping = handled(raise_stopped, *STOP_SIGNALS)
        quiet = writer_errors_said_once()
        with stopping, quiet, without_noise(), log_lines(), ExitStack() as held:
            resume = _resume(verb, options)
            # The checkpoint's config comes first, so that every other file and option overrides it.
            base = [] if resume is None else ["--config", json.dumps(resume.inherited)]
            PretrainingCLI([verb, *base, *options], resume=resume, held=held)
    except OSError as error:
        raise ConfigError(reason(error)) from error
    except (NonFiniteTraining, LostProcess) as error:
        say(str(error), verb)
        return 1
    except StoppedBySignal as error:
        if is_first_process():  # all processes of a run stop together; one message is enough
            say(str(error), verb)
        return 128 + error.signum
    except (MemoryError, *OBJECTIONS) as error:
        if reason_of_memory := _out_of_memory(error):
            raise ConfigError(reason_of_memory) from error
        if not raised_by(error, "lightning"):
            raise
        raise ConfigError(f"trainer: {error}") from error
    return 0


def _out_of_memory(error: Exception) -> str | None:
    """What to do if memory ran out; None for other errors."""
    from tabicl_linear.free_memory import is_out_of_memory

    if not is_out_of_memory(error):
        return None
    said = str(error).partition("\n")[0].rpartition("DefaultCPUAllocator: ")[2]
    return (
        f"Memory ran out ({said}): train a smaller model (model.architecture), or on fewer or "
        "smaller tables at once (data.shapes)."
    )


def _resume(verb: str, options: list[str]) -> Resume | None:
    """Read and check the checkpoint that `--ckpt_path` names; None without that option."""
    path = option_value(options, "ckpt_path")
    if path is None:
        if verb != "fit" and not any(map(_runs_nothing, options)):
            raise ConfigError(f"--ckpt_path is missing: name the checkpoint to {verb}.")
        return None
    resume = Resume.read(Path(path))
    trusts = (option_value(options, "trust_code") or "false").lower() == "true"
    resume.check_trust(trust_code=trusts)
    return resume


def _runs_nothing(option: str) -> bool:
    """Whether an option only prints help or a config."""
    return option in ("-h", "--help") or option.partition("=")[0] == "--print_config"

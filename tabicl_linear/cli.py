"""The verbs that train and score, and the same configs as Python objects.

One config tree with the sections `model`, `data` and `trainer` builds everything. Its defaults are
the paper's shared protocol, so that a file only says what differs.
"""

import pkgutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from tabicl_linear import mixers, strategies
from tabicl_linear.callbacks.checkpoint import RunCheckpoint, StoppedBySignal
from tabicl_linear.callbacks.progress import Progress
from tabicl_linear.callbacks.provenance import Provenance
from tabicl_linear.callbacks.throughput import Throughput
from tabicl_linear.commands.launch import Launch, limited, lost_process
from tabicl_linear.commands.process import log_lines, signals_raise, without_noise
from tabicl_linear.commands.resume import GIVEN_ANEW, Resume, option_value
from tabicl_linear.commands.run_folder import RunFolder
from tabicl_linear.commands.trainer_options import (
    as_list,
    check_monitors,
    check_trainer,
    make_trainer,
    with_run_loggers,
    with_whole_files,
)
from tabicl_linear.commands.usage import OBJECTIONS, OneLineParser, raised_by, reason, undecodable
from tabicl_linear.data.datamodule import PriorDataModule
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.task import InContextTask, NonFiniteTraining

MODEL_DEFAULTS = {
    "model.mixer": {"class_path": "tabicl_linear.mixers.delta.DeltaNet"},
    "model.readout": {"class_path": "tabicl_linear.readouts.Causal"},
    "model.strategy": {"class_path": "tabicl_linear.strategies.combined.Combined"},
    "model.optimizer": {
        "class_path": "torch.optim.AdamW",
        "init_args": {"lr": 3e-5, "weight_decay": 0.01},
    },
    "model.schedule": {"class_path": "tabicl_linear.training.schedule.WarmupCosine"},
    "data.prior": {"class_path": "tabicl_linear.priors.TabPFNv1Prior"},
}
TRAINER_DEFAULTS: dict[str, Any] = {
    "max_steps": 400_000,
    "max_epochs": -1,
    "accumulate_grad_batches": 2,
    "gradient_clip_val": 1.0,
    # In batches. There are no epochs: the stream has no end.
    "val_check_interval": 8000,
    "check_val_every_n_epoch": None,
    "num_sanity_val_steps": 0,
    # Streams and evaluation sets divide themselves among processes.
    "use_distributed_sampler": False,
    "default_root_dir": "runs",
}


class PretrainingCLI(LightningCLI):
    """`fit`, `validate` and `test`, and with `run=False` only the objects of a config.

    Args:
        args: Verb and options, or options alone.
        run: Whether the first argument is a verb to run.
        resume: The checkpoint that `args` continue from.
        held: Gets the lock of the run folder; whoever made it closes it.
    """

    def __init__(
        self,
        args: list[str],
        *,
        run: bool,
        resume: Resume | None = None,
        held: ExitStack | None = None,
    ) -> None:
        self.resume = resume
        self.run_folder: RunFolder | None = None
        self._held = held or ExitStack()
        super().__init__(
            InContextTask,
            PriorDataModule,
            save_config_callback=None,
            trainer_defaults=TRAINER_DEFAULTS,
            seed_everything_default=0,
            parser_class=OneLineParser,
            args=args,
            run=run,
            auto_configure_optimizers=False,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The verbs, and the arguments of Trainer's methods that the CLI fills in."""
        return {
            "fit": {"model", "train_dataloaders", "val_dataloaders", "datamodule"},
            "validate": {"model", "dataloaders", "datamodule"},
            "test": {"model", "dataloaders", "datamodule"},
        }

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the callbacks as sections of their own, the defaults, and the linked numbers."""
        # Help lists the subclasses that are imported.
        for package in (mixers, strategies):
            for module in pkgutil.iter_modules(package.__path__):
                import_module(f"{package.__name__}.{module.name}")
        parser.add_lightning_class_args(RunCheckpoint, "checkpoint")
        parser.add_lightning_class_args(Progress, "progress")
        parser.add_lightning_class_args(Throughput, "throughput")
        parser.add_argument(
            "--trust_code",
            type=bool,
            default=False,
            help="Also import classes of other packages that the checkpoint names.",
        )
        parser.add_argument(
            "--rank_timeout_minutes",
            type=float | None,
            default=None,
            help="How long a process waits for the others before all end with an error; PyTorch's "
            "own limit (30 minutes, 10 with NCCL) if left out.",
        )
        parser.set_defaults(MODEL_DEFAULTS)
        parser.link_arguments("data.shapes.max_features", "model.architecture.num_features")
        parser.link_arguments("data.shapes.max_classes", "model.architecture.num_classes")
        parser.link_arguments("seed_everything", "data.seed", compute_fn=_stream_seed)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse `args` alone, whatever the command line of this process is."""
        try:
            self.config = parser.parse_args(args)
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"--config {undecodable(args)}: not UTF-8 ({error.reason} at byte {error.start}); "
                "save it as UTF-8."
            ) from error

    def _parse_ckpt_path(self) -> None:
        """Nothing: the checkpoint's config came first, so that options count against it."""

    def _set_seed(self) -> None:
        if self.subcommand is None:
            # `build_task` guards the global generator; the seed makes the parameters reproducible.
            torch.default_generator.manual_seed(self.config["seed_everything"])
        else:
            seed = self.config[self.subcommand]["seed_everything"]
            seed_everything(seed, workers=True, verbose=False)

    def plain_config(self) -> dict[str, Any]:
        """The config of the verb as plain data, without what a new run must not inherit."""
        parser = self._parser(self.subcommand)
        config = self.config[self.subcommand].clone()
        plain = yaml.safe_load(parser.dump(config, skip_none=False))
        return {k: v for k, v in plain.items() if k not in GIVEN_ANEW}

    def before_instantiate_classes(self) -> None:
        """Refuse, before anything is built, what no training can follow."""
        check_trainer(self._get(self.config, "trainer"))
        if self.subcommand is not None and self.resume is None:
            given = self.config[self.subcommand]["ckpt_path"]
            if given is not None:
                raise ConfigError(
                    f"ckpt_path={given} in a config file: give it as --ckpt_path {given}."
                )
        if self.resume is not None:
            self.resume.check(self.plain_config(), training=self.subcommand == "fit")

    def instantiate_classes(self) -> None:
        """Build module, data and, for a verb, the trainer (which looks for devices)."""
        if self.subcommand is not None:
            super().instantiate_classes()
            return
        self.config_init = self.parser.instantiate_classes(self.config)
        self.datamodule = self.config_init["data"]
        self.model = self.config_init["model"]

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """The trainer; in `fit` it writes into the run folder."""
        options = {**self._get(self.config_init, "trainer"), **kwargs}
        # 1.0 would mean all batches of a stream without end; it is how the parser reads 1.
        options["overfit_batches"] = int(options["overfit_batches"])
        launch = Launch.detect()
        if launch is not None:
            options = launch.completed(options)
        minutes = self._get(self.config_init, "rank_timeout_minutes")
        if minutes is not None:
            options["strategy"] = limited(options["strategy"], minutes)
        if self.subcommand != "fit":
            options["callbacks"] = [
                *as_list(options["callbacks"]),
                Provenance(self.plain_config()),
            ]
            return make_trainer({**options, "logger": options["logger"] or False})
        callbacks = [self._get(self.config_init, "throughput")]
        if options["enable_progress_bar"] is not False:
            callbacks.append(self._get(self.config_init, "progress"))
        options["callbacks"] = [*as_list(options["callbacks"]), *callbacks]
        check_monitors(options["callbacks"])
        if options["fast_dev_run"]:
            return make_trainer(options)
        root = Path(options["default_root_dir"])
        self.run_folder = RunFolder.take(root, self.resume, self._held)
        options["default_root_dir"] = self.run_folder.path
        provenance = Provenance(self.plain_config(), new=self.run_folder.is_new)
        options["callbacks"].append(provenance)
        if options["enable_checkpointing"] is not False:
            options["callbacks"].append(self._get(self.config_init, "checkpoint"))
        step = 0 if self.resume is None else self.resume.step
        options["logger"] = with_run_loggers(options["logger"], self.run_folder.path, step)
        options["plugins"] = with_whole_files(options["plugins"])
        with self.run_folder.dropped_if_unused():
            return make_trainer(options)

    def fit(self, **kwargs: Any) -> None:
        """Train, saying first what a resumed run changes and where the run is kept."""
        if self.run_folder is None:
            self.trainer.fit(**kwargs)
            return
        if self.resume is not None:
            for key, stored, given in self.resume.changes(self.plain_config()):
                rank_zero_info(f"Resuming with {key}: {stored} -> {given}")
        rank_zero_info(f"Run folder: {self.run_folder.path}")
        with self.run_folder.dropped_if_unused():
            self.trainer.fit(**kwargs)


def build_task(*yaml_paths: str | Path, overrides: Sequence[str] = ()) -> InContextTask:
    """The task that `tabicl-linear fit --config ...` would train, with its initial parameters.

    They follow from `seed_everything` (0 by default); the global generators stay as they are.

    Args:
        yaml_paths: Config files, later ones laid over earlier ones; none gives the defaults.
        overrides: Options such as `"model.architecture.depth=2"`.

    Raises:
        ConfigError: A file, key or value that does not fit.
    """
    return _build(yaml_paths, overrides).model


def build_data(*yaml_paths: str | Path, overrides: Sequence[str] = ()) -> PriorDataModule:
    """The data module of a config, as `build_task` takes it: `.stream("train").batch(i)`."""
    return _build(yaml_paths, overrides).datamodule


def _build(yaml_paths: Sequence[str | Path], overrides: Sequence[str]) -> PretrainingCLI:
    args = [f"--config={path}" for path in yaml_paths] + [f"--{option}" for option in overrides]
    with torch.random.fork_rng(devices=[]), without_noise():
        return PretrainingCLI(args, run=False)


def run(argv: list[str]) -> int:
    """Run `fit`, `validate` or `test` with options; return the exit code.

    0, or 1 for training that is not finite, 2 for bad input, 130 after SIGINT, 143 after SIGTERM.
    """
    verb, *options = argv
    try:
        with signals_raise(), without_noise(), log_lines(), ExitStack() as held:
            path = option_value(options, "ckpt_path")
            if path is None and verb != "fit" and not any(map(_runs_nothing, options)):
                raise ConfigError(f"--ckpt_path is missing: name the checkpoint to {verb}.")
            resume = None if path is None else Resume.read(Path(path))
            if resume is not None:
                trusted = (option_value(options, "trust_code") or "false").lower() == "true"
                resume.check_trust(trust_code=trusted)
            base = [] if resume is None else resume.base_options
            PretrainingCLI([verb, *base, *options], run=True, resume=resume, held=held)
    except ConfigError:
        raise
    except OSError as error:
        raise ConfigError(reason(error)) from error
    except NonFiniteTraining as error:
        sys.stderr.write(f"tabicl-linear {verb}: {error}\n")
        return 1
    except StoppedBySignal as error:
        sys.stderr.write(f"tabicl-linear {verb}: {error}\n")
        return 128 + error.signum
    except OBJECTIONS as error:
        lost = lost_process(error) if isinstance(error, RuntimeError) else None
        if lost is not None:
            sys.stderr.write(f"tabicl-linear {verb}: {lost}\n")
            return 1
        if not raised_by(error, "lightning"):
            raise
        raise ConfigError(f"trainer: {error}") from error
    return 0


def _runs_nothing(option: str) -> bool:
    """Whether an option only prints help or a config."""
    return option in ("-h", "--help") or option.partition("=")[0] == "--print_config"


def _stream_seed(seed: bool | int) -> int:
    if isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise ConfigError(
            f"seed_everything={seed}: give a number from 0 to {2**32 - 1}; it also names the "
            "stream of training tasks."
        )
    return seed

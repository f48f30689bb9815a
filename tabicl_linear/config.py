"""Configs: one tree, with the sections `model`, `data` and `trainer`, describes everything.

Its defaults are the paper's shared protocol, so that a file needs only what differs from it.
"""

import json
import pkgutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.pytorch import seed_everything
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from tabicl_linear import mixers, strategies
from tabicl_linear.callbacks.cosine_drift import CosineDrift
from tabicl_linear.callbacks.length_probe import LengthProbe
from tabicl_linear.callbacks.probing import Probing
from tabicl_linear.callbacks.progress import Progress
from tabicl_linear.callbacks.run_checkpoint import RunCheckpoint
from tabicl_linear.callbacks.state_norms import StateNorms
from tabicl_linear.callbacks.thread_count import ThreadCount
from tabicl_linear.callbacks.throughput import Throughput
from tabicl_linear.callbacks.write_rates import WriteRates
from tabicl_linear.config_messages import OneLineParser, names_itself, undecodable
from tabicl_linear.data.datamodule import PriorDataModule
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.noise import without_noise
from tabicl_linear.training.task import InContextTask

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
    # Validation counts batches: the stream is endless and has no epochs.
    "val_check_interval": 8000,
    "check_val_every_n_epoch": None,
    "num_sanity_val_steps": 0,
    # The data module divides streams and evaluation sets among processes.
    "use_distributed_sampler": False,
    "default_root_dir": "runs",
}

PROBES: dict[str, type[Probing]] = {
    probing.name: probing for probing in (WriteRates, StateNorms, CosineDrift, LengthProbe)
}
"""Callbacks that look at the model in training, by config section; `every_n_steps: 0` is off."""

AT_LEAST_ONE = ("max_steps", "accumulate_grad_batches")
"""Options of the trainer that must be at least 1."""
NOT_ZERO = {
    "max_epochs": "give -1 for as many as max_steps needs",
    "limit_train_batches": "give a number of batches, or leave it out",
    "val_check_interval": "give a number of batches; limit_val_batches=0 turns validation off",
    "check_val_every_n_epoch": "give null: validation counts batches, not epochs",
}
"""Options of the trainer that cannot be 0, with the remedies for messages."""
LINKS = {
    "model.architecture.num_features": "data.shapes.max_features",
    "model.architecture.num_classes": "data.shapes.max_classes",
    "data.seed": "seed_everything",
}
"""Options that take the value of another option."""
IN_BATCHES = ("limit_train_batches", "overfit_batches")
"""Options of the trainer that must be numbers of batches: an endless stream has no shares."""
LIMITS = tuple(f"trainer.limit_{stage}_batches" for stage in ("train", "val", "test"))
"""Options that are numbers of batches, or shares of all."""


_PARSERS: dict[type, LightningArgumentParser] = {}
"""Parsers without verbs, by the class of CLI that made them."""


class ConfigCLI(LightningCLI):
    """Reads a config and builds module and data; a subclass in `tabicl_linear.cli` trains.

    Args:
        args: Options; with `run`, the verb and its options.
        run: Whether to run a verb.
    """

    def __init__(self, args: list[str], *, run: bool = False) -> None:
        super().__init__(
            InContextTask,
            PriorDataModule,
            save_config_callback=None,
            trainer_defaults=TRAINER_DEFAULTS,
            seed_everything_default=0,
            parser_class=OneLineParser,
            # Our own code that reads options (such as --ckpt_path) does not know abbreviations.
            parser_kwargs={"allow_abbrev": False},
            args=args,
            run=run,
            auto_configure_optimizers=False,
        )

    def setup_parser(self, add_subcommands: bool, *options: Any) -> None:
        """Make the parser. One without verbs is made once in a process, as parsing leaves it as is.

        Making it took half the time of building a model.
        """
        if add_subcommands:
            super().setup_parser(add_subcommands, *options)
            return
        if (kept := _PARSERS.get(type(self))) is None:
            super().setup_parser(add_subcommands, *options)
            _PARSERS[type(self)] = self.parser
        else:
            self.parser = self._options_parser = kept

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add sections for the callbacks, the defaults, and the linked arguments."""
        self._options_parser = parser  # the verb's parser, if there is a verb
        # Help lists only subclasses in modules that have been imported.
        for package in (mixers, strategies):
            for module in pkgutil.iter_modules(package.__path__):
                import_module(f"{package.__name__}.{module.name}")
        parser.add_lightning_class_args(RunCheckpoint, "checkpoint")
        parser.add_lightning_class_args(Progress, "progress")
        parser.add_lightning_class_args(Throughput, "throughput")
        parser.add_lightning_class_args(ThreadCount, "thread_count")
        for name, probing in PROBES.items():
            parser.add_lightning_class_args(probing, name)
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
            "limit (30 minutes, 10 with NCCL) if left out.",
        )
        for action in parser._actions:
            if action.dest in LIMITS:
                # With Lightning's float | int, 1 (one batch) would be parsed as 1.0 (all batches).
                vars(action)["_typehint"] = int | float | None
        parser.set_defaults(MODEL_DEFAULTS)
        for target, source in LINKS.items():
            compute = _stream_seed if target == "data.seed" else None
            parser.link_arguments(source, target, compute_fn=compute)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse `args`, ignoring the command line of this process."""
        for text in args or ():
            if names_itself(text):
                raise ConfigError(
                    f"{text[:200]}: an alias (*) stands inside of what it stands for; write it out."
                )
        try:
            self.config = self._parsed(parser, args)
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"--config {undecodable(args)}: not UTF-8 ({error.reason} at byte {error.start}); "
                "save it as UTF-8. To resume, give a checkpoint as --ckpt_path."
            ) from error
        except SyntaxError as error:  # in the module of a class that the config names
            raise ConfigError(
                f"{error.filename}, line {error.lineno}: {error.msg}; mend the file, Python cannot "
                "read it."
            ) from error

    def _parsed(self, parser: LightningArgumentParser, args: Any) -> Namespace:
        """Parse the config, with the verb's own parser if there is a verb.

        The parser above it has no options of its own, and would parse those of the verb a second
        time. It is used only to print a config.
        """
        prints = any(text.partition("=")[0] == "--print_config" for text in args)
        if prints or self._options_parser is parser:
            return parser.parse_args(args)
        verb, *options = args
        return Namespace(**{"subcommand": verb, verb: self._options_parser.parse_args(options)})

    def _parse_ckpt_path(self) -> None:
        """Do nothing: the checkpoint's config was parsed first, so that options override it."""

    def _dump_config(self) -> None:
        """Convert the config to plain data, once; the module stores its part as `hparams`.

        This goes through JSON, which is faster than Lightning's YAML.
        """
        if "config_dump" not in vars(self):
            dump = self.parser.dump(
                self.config,
                format="json",
                skip_none=False,
                skip_link_targets=False,
                skip_validation=True,  # parsing has validated it
            )
            whole = json.loads(dump)
            self.config_dump = whole if self.subcommand is None else whole[self.subcommand]

    def _set_seed(self) -> None:
        if self.subcommand is None:
            # Makes the parameters reproducible; `_build` restores the global generator.
            torch.default_generator.manual_seed(self.config["seed_everything"])
        else:
            seed = self.config[self.subcommand]["seed_everything"]
            seed_everything(seed, workers=True, verbose=False)

    def before_instantiate_classes(self) -> None:
        """Raise `ConfigError` for invalid options, before anything is built."""
        check_trainer(self._get(self.config, "trainer"))

    def instantiate_classes(self) -> None:
        """Build module and data, and, for a verb, the trainer (which looks for devices)."""
        if self.subcommand is not None:
            super().instantiate_classes()
            return
        self.config_init = self.parser.instantiate_classes(self.config)
        self.datamodule = self.config_init["data"]
        self.model = self.config_init["model"]


def build_task(*yaml_paths: str | Path, overrides: Sequence[str] = ()) -> InContextTask:
    """The task that `tabicl-linear fit --config ...` would train, with its initial parameters.

    The parameters depend on `seed_everything` (0 by default); global generators are unchanged.

    Args:
        yaml_paths: Config files, later ones overriding earlier ones; none gives the defaults.
        overrides: Options such as `"model.architecture.depth=2"`.

    Raises:
        ConfigError: A file, key or value is invalid.
    """
    return _build(yaml_paths, overrides).model


def build_data(*yaml_paths: str | Path, overrides: Sequence[str] = ()) -> PriorDataModule:
    """The data module of a config (arguments as in `build_task`): `.stream("train").batch(i)`."""
    return _build(yaml_paths, overrides).datamodule


def build_callbacks(*yaml_paths: str | Path, overrides: Sequence[str] = ()) -> dict[str, Probing]:
    """The callbacks of a config that look at the model, by section; also those that are off."""
    sections = _build(yaml_paths, overrides).config_init
    return {name: sections[name] for name in PROBES}


def trainer_options(*yaml_paths: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The section `trainer` of a config, including defaults."""
    return vars(_build(yaml_paths, overrides).config["trainer"])


def _build(yaml_paths: Sequence[str | Path], overrides: Sequence[str]) -> ConfigCLI:
    if isinstance(overrides, str):
        raise ConfigError(f"overrides={overrides!r} is one text; give a list of such texts.")
    args = [f"--config={path}" for path in yaml_paths] + [f"--{option}" for option in overrides]
    with torch.random.fork_rng(devices=[]), without_noise():
        return ConfigCLI(args)


def check_trainer(options: Mapping[str, Any]) -> None:
    """Check the trainer's options.

    Raises:
        ConfigError: With an option, nothing would be trained or reported, or it does not make
            sense for an endless stream. The message names the option, its value and the remedy.
    """
    for key in AT_LEAST_ONE:
        if options[key] < 1:
            raise ConfigError(f"trainer.{key}={options[key]}: give a number of at least 1.")
    if options["barebones"]:
        raise ConfigError(
            "trainer.barebones=True: the run would say and keep nothing; to save time, give "
            "--trainer.logger false or --trainer.enable_checkpointing false, and to measure steps, "
            "`tabicl-linear bench train`."
        )
    clip = options["gradient_clip_val"]
    if clip is not None and clip < 0:  # Lightning would silently not clip
        raise ConfigError(f"trainer.gradient_clip_val={clip}: give a norm above 0, or null.")
    for key, remedy in NOT_ZERO.items():
        if options[key] is not None and options[key] == 0:
            raise ConfigError(f"trainer.{key}={options[key]}: nothing would happen; {remedy}.")
    for key in IN_BATCHES:
        share = options[key]
        if share is not None and share % 1:
            raise ConfigError(
                f"trainer.{key}={share}: the training stream has no end to take a share of; give a "
                "number of batches."
            )


def _stream_seed(seed: bool | int) -> int:
    if isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise ConfigError(
            f"seed_everything={seed}: give a number from 0 to {2**32 - 1}; it also determines the "
            "stream of training tasks."
        )
    return seed

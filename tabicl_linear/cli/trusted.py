"""What the config of an untrusted checkpoint may hold; the rules are in `trust`.

The list is short on purpose. Each class in it was reviewed: arguments that are not listed accept
only numbers, so a config cannot smuggle in a function, a class, or text that the parser imports.
"""

from collections.abc import Mapping
from importlib import import_module
from itertools import dropwhile
from pathlib import PurePath
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.plugins.io import CheckpointIO
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tabicl_linear.architecture import Architecture
from tabicl_linear.backends.choice import Backend
from tabicl_linear.data.datamodule import PriorDataModule
from tabicl_linear.errors import CheckpointError
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.readouts import Readout
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.training.state_passing import StatePassing
from tabicl_linear.trust import Allowed, check, of_annotation, of_class, of_dataclass, words

FOLDER = Allowed(r"(?!.*(://|::))[^\x00-\x1f]+")
"""A local path. For one with a scheme (`s3://`), Lightning would import a client."""
NAME = Allowed(r"(?!.*\.\.)(?!/)[\w .=+/-]*")
"""The name of a metric, file or logger, which cannot lead out of its folder."""
TEMPLATE = Allowed(r"(?!.*\.\.)(?!/)([\w .=+/-]|\{[\w/]+(:[\w.]*)?\})*")
"""A file name with placeholders for metrics, such as `{step}-{val/loss:.3f}`."""
DURATION = Allowed(r"(\d+ days?, )?\d+(:\d+){2,3}(\.\d+)?")
DEVICE = Allowed(r"(cpu|cuda|mps)(:\d+)?")
MODE = words("min", "max")

Named = Mapping[str, Mapping[str, Allowed]]
Group = tuple[str, dict[str, dict[str, Allowed]]]


def of_numbers(*names: str) -> dict[str, dict[str, Allowed]]:
    """Classes all of whose arguments are numbers."""
    return {name: {} for name in names}


LOGS = {"save_dir": FOLDER, "name": NAME, "version": NAME, "prefix": NAME}
OPTIMISERS: Group = (
    "torch.optim",
    of_numbers(
        *("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam"),
        *("RAdam", "RMSprop", "Rprop", "SGD"),
    ),
)
SCHEDULES: Group = (
    "torch.optim.lr_scheduler",
    {
        **of_numbers("ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts"),
        **of_numbers("ExponentialLR", "LinearLR", "MultiStepLR", "PolynomialLR", "StepLR"),
        "CyclicLR": {
            "mode": words("triangular", "triangular2", "exp_range"),
            "scale_mode": words("cycle", "iterations"),
        },
        "OneCycleLR": {"anneal_strategy": words("cos", "linear")},
    },
)
CALLBACKS: Group = (
    "lightning.pytorch.callbacks",
    {
        **of_numbers("DeviceStatsMonitor", "ModelSummary", "TQDMProgressBar"),
        "EarlyStopping": {"monitor": NAME, "mode": MODE},
        "GradientAccumulationScheduler": {"scheduling": Allowed(mapping=True)},
        "LearningRateMonitor": {"logging_interval": words("step", "epoch")},
        "ModelCheckpoint": {
            "dirpath": FOLDER,
            "filename": TEMPLATE,
            "mode": MODE,
            "monitor": NAME,
            "save_last": words("link"),
            "train_time_interval": DURATION,
        },
        "Timer": {
            "duration": Allowed(DURATION.texts, mapping=True),
            "interval": words("step", "epoch"),
        },
    },
)
LOGGERS: Group = (
    "lightning.pytorch.loggers",
    {
        "CSVLogger": LOGS,
        "TensorBoardLogger": LOGS
        | {"sub_dir": NAME, "comment": words(""), "filename_suffix": words("")},
    },
)
STRATEGIES: Group = (
    "lightning.pytorch.strategies",
    {
        "DDPStrategy": {
            "process_group_backend": words("gloo", "nccl"),
            "start_method": words("popen", "spawn", "fork", "forkserver"),
            "timeout": DURATION,
        },
        "SingleDeviceStrategy": {"device": DEVICE},
    },
)
PROFILERS: Group = (
    "lightning.pytorch.profilers",
    {
        name: {"dirpath": FOLDER, "filename": NAME}
        for name in ("AdvancedProfiler", "SimpleProfiler")
    },
)
PLUGINS: Group = (
    "lightning.pytorch.plugins.environments",
    of_numbers("LightningEnvironment", "SLURMEnvironment"),
)
OUR_CALLBACKS: Group = (
    "tabicl_linear.callbacks.initial_weights",
    {"InitialWeights": {"path": FOLDER}},
)
"""Our callbacks that take text. The others take only numbers and need no entry."""
GROUPS = (OPTIMISERS, SCHEDULES, CALLBACKS, OUR_CALLBACKS, LOGGERS, STRATEGIES, PROFILERS, PLUGINS)
PRECISIONS = (
    *("64", "32", "16", "bf16", "64-true", "32-true", "16-true", "bf16-true"),
    *("16-mixed", "bf16-mixed"),
)
DDP = tuple(
    f"{start}{suffix}"
    for start in ("ddp", "ddp_fork", "ddp_spawn")
    for suffix in ("", "_find_unused_parameters_false", "_find_unused_parameters_true")
)
SUFFIX = ".ckpt"


def by_path(group: Group) -> Named:
    """The classes of a group, each under its public path and the path of its definition."""
    package, classes = group
    allowed: dict[str, Mapping[str, Allowed]] = {}
    for name, arguments in classes.items():
        cls = vars(import_module(package))[name]
        allowed |= dict.fromkeys((f"{package}.{name}", f"{cls.__module__}.{name}"), arguments)
    return allowed


def sections() -> dict[str, Allowed]:
    """What is allowed in each section of a checkpoint's config."""
    model = {
        "mixer": Allowed(bases=(SequenceMixer,)),
        "readout": Allowed(bases=(Readout,)),
        "strategy": Allowed(bases=(Strategy,)),
        "architecture": of_dataclass(Architecture),
        "optimizer": Allowed(bases=(Optimizer,), named=by_path(OPTIMISERS)),
        "schedule": Allowed(bases=(LRScheduler,), named=by_path(SCHEDULES)),
        "state_passing": of_annotation(StatePassing),
        "backend": of_annotation(Backend),
    }
    trainer = {
        "accelerator": words("auto", "cpu", "gpu", "cuda", "mps"),
        "strategy": Allowed(words("auto", *DDP).texts, named=by_path(STRATEGIES)),
        "devices": Allowed(r"auto|-?\d+(, ?\d+)*,?"),
        "precision": words(*PRECISIONS),
        "logger": Allowed(named=by_path(LOGGERS)),
        "callbacks": Allowed(
            bases=(Callback,), named={**by_path(CALLBACKS), **by_path(OUR_CALLBACKS)}
        ),
        "max_time": Allowed(DURATION.texts, mapping=True),
        "gradient_clip_algorithm": words("norm", "value"),
        "deterministic": words("warn"),
        "profiler": Allowed(words("simple", "advanced").texts, named=by_path(PROFILERS)),
        "plugins": Allowed(bases=(CheckpointIO,), named=by_path(PLUGINS)),
        "default_root_dir": FOLDER,
    }
    whole = {"model": model, "data": of_class(PriorDataModule), "trainer": trainer}
    return {name: Allowed(fields=fields) for name, fields in whole.items()}


def check_config(config: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if a config holds more than plain data and the classes listed here."""
    allowed = sections()
    for name, tree in config.items():
        # All other sections are options of our callbacks, which are numbers.
        check(str(name), tree, allowed.get(name, Allowed(fields={})))


def check_states(callbacks: Any) -> None:
    """Raise `CheckpointError` if callback states could make a run delete other files.

    Lightning's `ModelCheckpoint` deletes files that its state names once they are no longer among
    the best, so these must be checkpoints.
    """
    states = callbacks if type(callbacks) is dict else {}
    for name, state in states.items():
        for path in _deletable(state) if str(name).startswith("ModelCheckpoint") else ():
            upwards = dropwhile(lambda part: part == "..", PurePath(str(path)).parts)
            if "://" in str(path) or not str(path).endswith(SUFFIX) or ".." in upwards:
                raise CheckpointError(
                    f"the state of {name} names {str(path)[:200]!r} as a checkpoint that may be "
                    "deleted, which is none; give a last.ckpt that `tabicl-linear fit` wrote."
                )


def _deletable(state: Any) -> list[Any]:
    """The paths in the state of a `ModelCheckpoint`, without empty ones, which mean no file."""
    if type(state) is not dict:
        return []
    singles = [state.get(f"{which}_model_path") for which in ("best", "kth_best", "last")]
    return [path for path in (*singles, *(state.get("best_k_models") or ())) if path]

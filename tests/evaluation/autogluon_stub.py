"""As much of AutoGluon's and TabArena's interfaces as the model uses, where they are not installed.

Written after autogluon.tabular 1.6.3 and tabarena 0.1.0; `test_tabarena.py` runs on the real ones
where they are there.
"""

import pickle
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any


class AbstractTorchModel:
    """Fits, saves and loads as AutoGluon's: with parameters, devices and a seed of its own."""

    def __init__(self, path, name, problem_type, eval_metric, hyperparameters):
        self.path, self.name, self.problem_type = Path(path), name, problem_type
        self.device = None
        self.model = None
        self._params = {self.seed_name: 0} | hyperparameters

    def fit(self, *, X, y, num_cpus, num_gpus):
        self._fit(X=X, y=y, num_cpus=num_cpus, num_gpus=num_gpus, time_limit=None, X_val=None)
        self.device = self.get_device()
        return self

    def preprocess(self, X, **kwargs):
        return X

    def predict_proba(self, X):
        result = self.model.predict_proba(self.preprocess(X))
        return result[:, 1] if self.problem_type == "binary" else result

    def set_device(self, device):
        self.device = device
        self._set_device(device)

    def save(self):
        self.set_device("cpu")
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "model.pkl").write_bytes(pickle.dumps(self))
        return str(self.path)

    @classmethod
    def load(cls, path):
        return pickle.loads((Path(path) / "model.pkl").read_bytes())

    @classmethod
    def supported_problem_types(cls):
        return cls._supported_problem_types

    def _get_model_params(self):
        return dict(self._params)

    def _resolve_fit_device(self, num_gpus):
        return "cuda" if num_gpus else "cpu"


@dataclass
class ConfigGenerator:
    search_space: dict[str, Any]
    model_cls: type
    manual_configs: list[dict[str, Any]]


@dataclass(frozen=True)
class ModelDescriptor:
    display_name: str
    compute: str
    is_bag: bool

    def method_metadata(self, *, method, **kwargs):
        names = {"ag_key", "model_key", "can_hpo", "verified"}
        assert set(kwargs) <= names, set(kwargs) - names
        return {"method": method, **vars(self), **kwargs}


@dataclass(frozen=True)
class ModelInfo:
    model_cls: type
    search_space: ConfigGenerator
    method_metadata: dict[str, Any]
    pip_extra: tuple[str, ...] = field(default_factory=tuple)


CONTENTS = {
    "autogluon.tabular.models.abstract.abstract_torch_model": [AbstractTorchModel],
    "tabarena.utils.config_utils": [ConfigGenerator],
    "tabarena.models._method_metadata": [ModelDescriptor],
    "tabarena.models._model_info": [ModelInfo],
}


def install(monkeypatch, package):
    """Put the modules of a package where imports find them."""
    for name, classes in CONTENTS.items():
        parts = name.split(".")
        if parts[0] != package:
            continue
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
        for one in classes:
            monkeypatch.setattr(sys.modules[name], one.__name__, one, raising=False)

"""The scikit-learn classifier on top of a pretrained in-context learner."""

import copy
import os
import warnings
from pathlib import Path
from typing import Any, Self

import torch

from tabicl_linear.checkpoint import load_model
from tabicl_linear.errors import CheckpointError, ConfigError, DataError
from tabicl_linear.estimator import state_file
from tabicl_linear.estimator.base import resolved_device
from tabicl_linear.estimator.growing import GrowingClassifier
from tabicl_linear.estimator.preprocessing import CategoricalFeatures
from tabicl_linear.model import InContextModel

DEFAULT_WEIGHTS = Path(__file__).parents[1] / "checkpoints" / "default.safetensors"


class TabICLLinearClassifier(GrowingClassifier):
    """Classifies the rows of a table with a pretrained in-context learner, without training.

    `fit` encodes the table, writes its rows into the model's states and keeps the states, whose
    size does not depend on the number of rows (except with softmax attention). `predict` only
    reads them.

    Args:
        model: "default" for the weights that ship with the package, a path to a Lightning
            checkpoint or a safetensors export, or a model.
        n_estimators: Members of the preprocessing ensemble.
        softmax_temperature: Divides the logits (the authors use 0.8).
        categorical_features: Columns to read as categories whatever they hold: positions, names,
            or one boolean per column. Text, booleans and pandas categories are always read so.
        device: "cpu", "cuda", "cuda:1" ...; None takes CUDA where it is available.
        random_state: Seed of the ensemble.
        n_jobs: CPU threads while fitting and predicting (-1: all); None leaves torch's setting.
        rows_per_batch: Maximum number of rows in the network at a time, over all members; longer
            tables are processed in chunks, which changes predictions only by rounding. Lower it
            if memory runs out.
        verbose: 1 shows progress on stderr (on a terminal).

    Attributes:
        classes_: Class labels, sorted.
        n_features_in_: Columns of the training table.
        feature_names_in_: Their names, if the table had names and all of them are strings.
        preprocessor_: What was learnt about the columns (`columns`, including dropped ones).
        ensemble_: The fitted members.
        state_bytes_: Bytes of the fitted states of one member.
        state_nbytes_: Bytes of those of all members.
        n_samples_seen_: Rows read so far.
        prequential_: How well `partial_fit` predicted pieces before it read them, if asked to.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | InContextModel = "default",
        *,
        n_estimators: int = 8,
        softmax_temperature: float = 0.8,
        categorical_features: CategoricalFeatures = None,
        device: str | torch.device | None = None,
        random_state: Any = 42,
        n_jobs: int | None = None,
        rows_per_batch: int = 16384,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.n_estimators = n_estimators
        self.softmax_temperature = softmax_temperature
        self.categorical_features = categorical_features
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.rows_per_batch = rows_per_batch
        self.verbose = verbose

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str | os.PathLike[str] | InContextModel | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """A fitted classifier from a file that `save` has written.

        Args:
            path: The file.
            model: The model that it was fitted with, if that is now in another place, or was given
                as an object.
            device: Where to compute, whatever device it was fitted on; see the class.
            dtype: torch.float32 or torch.float64; that of the model if left out.

        Raises:
            CheckpointError: The file is missing, damaged, or of another version or class, or the
                model is missing or another one.
            ConfigError: The device or dtype is not supported.
        """

        def find(name: str) -> InContextModel:
            if model is None and not name:
                raise CheckpointError(
                    f"{path} was fitted with a model that was given as an object: give it again, "
                    "`load(path, model=MODEL)`."
                )
            try:
                return cls(name if model is None else model)._load_model()
            except CheckpointError as error:
                if model is not None:
                    raise
                raise CheckpointError(
                    f"{path} was fitted with the model {name!r}, which cannot be read here: give "
                    f"its place as `load(path, model=PATH)`. {error}"
                ) from error

        content = state_file.read(
            Path(path), cls.__name__, find, device=resolved_device(device), dtype=dtype
        )
        given = {} if model is None else {"model": model}
        return cls._restored(content, device=device, **given)

    def _make_learner(self, num_classes: int, num_rows: int) -> InContextModel:
        model = self._load_model()
        limit = model.architecture.num_classes
        if num_classes > limit:
            raise DataError(
                f"y holds {num_classes} classes and the model takes at most {limit}: join rare "
                "classes, or predict groups of classes first and then the classes of a group."
            )
        self._warn_beyond_training(model, num_rows)
        return model

    def _load_model(self) -> InContextModel:
        if isinstance(self.model, InContextModel):
            return copy.deepcopy(self.model).eval()
        if not isinstance(self.model, str | os.PathLike):
            raise ConfigError(f"model={self.model!r}: give 'default', a path or an InContextModel.")
        if self.model != "default":
            return load_model(Path(self.model)).eval()
        if not DEFAULT_WEIGHTS.is_file():
            raise CheckpointError(
                "model='default': this installation carries no weights; pretrain a model with "
                "`make demo` or `tabicl-linear fit` and pass model=PATH to its last.ckpt or export."
            )
        return load_model(DEFAULT_WEIGHTS).eval()

    def _warn_beyond_training(self, model: InContextModel, num_rows: int) -> None:
        trained = model.provenance.get("trained_rows")
        if trained is not None and num_rows > trained[1]:
            warnings.warn(
                f"The table has {num_rows} rows and the model was pretrained on tables of at most "
                f"{trained[1]}: accuracy may fall with more rows; compare with a sample of that "
                "size, or use a model pretrained on longer tables.",
                UserWarning,
                stacklevel=6,
            )

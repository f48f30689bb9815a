"""Starts a new training from the weights of another one."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from tabicl_linear.checkpoint import read
from tabicl_linear.errors import CheckpointError
from tabicl_linear.shipped import checkpoint_path
from tabicl_linear.training.task import InContextTask, differing_weights


class InitialWeights(Callback):
    """Starts a training from the weights of an earlier one, such as those in the package.

    Only weights are taken: optimiser, schedule, data and step are those of a new run. The network
    must be the one that the weights belong to, except for options on which no weight depends
    (numbers of random features, dropout). A resumed run continues with its own weights and does
    not need the file.

    Args:
        path: An export or checkpoint of `tabicl-linear`, or the name of weights in the package
            (default, streaming).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._is_resumed = False

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note that the run is resumed, so that it keeps its own weights."""
        self._is_resumed = True

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace the randomly drawn weights, unless the run is resumed.

        Raises:
            CheckpointError: The file cannot be read, or its weights are those of another network.
        """
        if self._is_resumed:
            return
        assert isinstance(pl_module, InContextTask)
        weights = read(checkpoint_path(self.path)).weights
        if differing := differing_weights(weights, pl_module.model.state_dict()):
            raise CheckpointError(
                f"InitialWeights: {self.path} holds the weights of another network ({differing}): "
                "give the model's options that they were trained with."
            )
        pl_module.model.load_state_dict(weights)

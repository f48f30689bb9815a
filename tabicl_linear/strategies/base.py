"""The contract of a training strategy: label embedding times target formulation (section 3.2).

A strategy decides which tokens are written and which are only read. It never sees a mixer.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple, get_args

from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Float, Tensor

Target = Literal["single", "multi"]


class Tokens(NamedTuple):
    """One layout of a task.

    Attributes:
        context: Tokens that are written, in order.
        queries: Tokens that only read, independently; none in multi-target training.
    """

    context: Float[Tensor, "b t d"]
    queries: Float[Tensor, "b u d"]


class Strategy(nn.Module, ABC):
    """A label embedding (the subclass) with a target formulation (the argument).

    The target formulation affects training alone: prediction always uses the single-target
    layout, so that no query influences another.

    Args:
        target: `single`: queries are read independently. `multi`: query rows are written as well,
            one after the other, and each is predicted from the rows before it.

    Attributes:
        writes_query_labels: Whether multi-target training writes the labels of query rows too.
    """

    writes_query_labels: ClassVar[bool] = False

    def __init__(self, target: Target = "single") -> None:
        super().__init__()
        if target not in get_args(Target):
            raise ConfigError(f"target={target!r} must be one of {get_args(Target)}.")
        self.target = target

    def check_labels_are_hidden(self, *, is_causal: bool, ridge_form: str | None) -> None:
        """Refuse a model in which a row would see its own label while it trains.

        Args:
            is_causal: Whether no layer reads tokens that are written later.
            ridge_form: `RidgeOptions.form`; None without ridge inputs.

        Raises:
            ConfigError: Query rows are written, and something reads more than the rows before them.
        """
        if self.target == "single":
            return
        if ridge_form not in (None, "earlier_rows"):
            raise ConfigError(
                f"Multi-target training writes the rows it predicts, and ridge_inputs.form="
                f"{ridge_form} predicts a row from the labels of all others, whose inputs then "
                "reveal its own: set ridge_inputs.form to earlier_rows, or target: single."
            )
        if not is_causal:
            raise ConfigError(
                "Multi-target training writes the rows it predicts, and a readout that is not "
                "causal (or woven states) would let a row read its own label or later rows; use "
                "tabicl_linear.readouts.Causal without initial_states: woven, or target: single."
            )

    @abstractmethod
    def context_tokens(
        self, rows: Float[Tensor, "b c d"], labels: Float[Tensor, "b c d"]
    ) -> Float[Tensor, "b t d"]:
        """Tokens of labelled rows."""

    @abstractmethod
    def query_tokens(
        self, rows: Float[Tensor, "b q d"], placeholder: Float[Tensor, "b 1 d"]
    ) -> Float[Tensor, "b q d"]:
        """Tokens of unlabelled rows, one each."""

    @abstractmethod
    def multi_target_tokens(
        self,
        rows: Float[Tensor, "b n d"],
        labels: Float[Tensor, "b n d"],
        placeholder: Float[Tensor, "b 1 d"],
        *,
        num_context: int,
    ) -> Float[Tensor, "b t d"]:
        """Tokens of context and query rows in one written sequence."""

    @abstractmethod
    def multi_target_outputs(
        self, outputs: Float[Tensor, "b t d"], *, num_context: int
    ) -> Float[Tensor, "b q d"]:
        """The outputs of a multi-target sequence that predict the query rows."""

    def training_tokens(
        self,
        rows: Float[Tensor, "b n d"],
        labels: Float[Tensor, "b n d"],
        placeholder: Float[Tensor, "b 1 d"],
        *,
        num_context: int,
    ) -> Tokens:
        """The layout of a training step; the first `num_context` rows are context."""
        if self.target == "multi":
            written = self.multi_target_tokens(rows, labels, placeholder, num_context=num_context)
            return Tokens(written, rows[:, :0])
        context = self.context_tokens(rows[:, :num_context], labels[:, :num_context])
        return Tokens(context, self.query_tokens(rows[:, num_context:], placeholder))

    def predictions(
        self, outputs: Float[Tensor, "b _t d"], *, num_context: int
    ) -> Float[Tensor, "b q d"]:
        """The outputs that predict the query rows, in row order.

        Args:
            outputs: For the written sequence in multi-target training, otherwise for the queries.
            num_context: Rows of context.
        """
        if self.target == "multi":
            return self.multi_target_outputs(outputs, num_context=num_context)
        return outputs

"""Layer-local ridge regression."""

from typing import get_args

from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.ridge import Penalty, RidgeRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim
from tabicl_linear.nn.feature_maps import elu_plus_one
from tabicl_linear.nn.initialise import initialise_
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.types import Float, Int, Tensor


class Ridge(SequenceMixer):
    """S = argmin sum_i |v_i - S phi(k_i)|^2 + n lambda |S|^2, read as S phi(q) (appendix B.5).

    This is the closed-form solution of the problem that recurrent states approach token by token
    (Equation 3), with phi = elu + 1 as in linear attention. It needs the final-state readout.

    Args:
        dim: Width of a token.
        num_heads: Heads; must divide `dim`.
        penalty: `scaled` (n lambda), `plain` (lambda) or `none` (least squares).
        regulariser: lambda. The paper does not state its value.
        norm_eps: Epsilon of the output norm.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        penalty: Penalty = "scaled",
        regulariser: float = 1.0,
        norm_eps: float = 1e-5,
    ) -> None:
        if penalty not in get_args(Penalty):
            raise ConfigError(f"penalty={penalty!r} must be one of {get_args(Penalty)}.")
        if not regulariser > 0:
            raise ConfigError(
                f"regulariser={regulariser} must be positive; for least squares set penalty: none."
            )
        width = head_dim(dim, num_heads)
        super().__init__(RidgeRule(penalty, regulariser), (num_heads, width, width))
        self.head_dim = width
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.norm = RMSNorm(self.head_dim, eps=norm_eps)
        self.out = nn.Linear(dim, dim, bias=False)
        initialise_(self)

    def project(
        self,
        x: Float[Tensor, "b t d"],
        positions: Int[Tensor, " t"],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Streams, Float[Tensor, "b w d"] | None]:
        """Feature-mapped queries and keys, and values."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).unbind(-3)
        return Streams(elu_plus_one(q) * self.head_dim**-0.5, elu_plus_one(k), v), None

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """Norm per head, then the output projection."""
        return self.out(self.norm(heads).flatten(-2))

"""DeltaNet."""

from torch import nn

from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim
from tabicl_linear.nn.delta_features import DeltaFeatures
from tabicl_linear.nn.gates import WriteRate
from tabicl_linear.nn.initialise import initialise_
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.nn.short_conv import ShortConvolution, project
from tabicl_linear.types import Float, Int, Tensor


class DeltaNet(SequenceMixer):
    """S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T (section 4.4).

    Queries, keys and values pass through silu. Queries and keys have unit norm, and queries are
    scaled by key_dim^-0.5. The state starts at zero and is float32. Outputs pass through a norm per
    head.

    Args:
        dim: Width of a token.
        num_heads: Heads; must divide `dim`.
        decay_constant: c of the write-rate decay c / (t + c), in tokens (the paper's c is 256);
            None for no decay.
        conv_size: Window of the short convolution over projected tokens (the paper's Int-MT model
            uses 4); None for none.
        norm_eps: Epsilon of the output norm.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        decay_constant: float | int | None = None,
        conv_size: int | None = None,
        norm_eps: float = 1e-6,
    ) -> None:
        width = head_dim(dim, num_heads)
        super().__init__(DeltaRule(), (num_heads, width, width))
        self.head_dim = width
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.conv = None if conv_size is None else ShortConvolution(3 * dim, conv_size)
        self.features = DeltaFeatures()
        self.write_rate = WriteRate(dim, num_heads, decay_constant)
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
        """Unit-norm queries and keys, values and write rates."""
        qkv, conv_inputs = project(self.conv, x, self.qkv, conv_inputs, independent=independent)
        q, k, v = self.features(qkv.unflatten(-1, (3, self.num_heads, self.head_dim)))
        return Streams(q, k, v, beta=self.write_rate(x, positions)), conv_inputs

    def output(
        self, heads: Float[Tensor, "b t h v"], streams: Streams, x: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t d"]:
        """Norm per head, then the output projection."""
        return self.out(self.norm(heads).flatten(-2))

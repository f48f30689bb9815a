"""Causal depthwise convolution over the last few tokens."""

from collections.abc import Callable

import torch
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Float, Tensor


class ShortConvolution(nn.Module):
    """y_t = sum_j w_j x_{t-size+1+j} per channel: each token sees itself and size - 1 before it.

    Args:
        dim: Channels.
        size: Width of the window in tokens.
        bias: Whether to add a bias per channel.
    """

    def __init__(self, dim: int, size: int, *, bias: bool = False) -> None:
        super().__init__()
        if size < 2:
            raise ConfigError(
                f"conv_size={size} must be at least 2; leave it out for no convolution."
            )
        self.size = size
        self.conv = nn.Conv1d(dim, dim, size, groups=dim, bias=bias)

    def project(
        self,
        x: Float[Tensor, "b t d"],
        projection: Callable[[Tensor], Tensor],
        conv_inputs: Float[Tensor, "b w d"] | None,
        *,
        independent: bool,
    ) -> tuple[Float[Tensor, "b t e"], Float[Tensor, "b w d"]]:
        """Project and convolve tokens; also return the last inputs, which later tokens need.

        Args:
            x: Inputs of a mixer.
            projection: Token-wise map from d to the channels of the convolution, without bias.
            conv_inputs: The `size - 1` previous inputs; None at the start of a sequence.
            independent: Convolve each token as if it directly followed `conv_inputs`, which are
                then returned unchanged.
        """
        if conv_inputs is None:
            conv_inputs = x.new_zeros(x.shape[0], self.size - 1, x.shape[2])
        before = projection(conv_inputs)
        if independent:
            return self.independent(projection(x), before), conv_inputs
        return self(projection(x), before), torch.cat([conv_inputs, x], dim=1)[:, 1 - self.size :]

    def forward(
        self, x: Float[Tensor, "b t e"], before: Float[Tensor, "b w e"]
    ) -> Float[Tensor, "b t e"]:
        """Convolve a sequence that follows the `size - 1` tokens `before`."""
        if not x.shape[1]:
            return x
        return self.conv(torch.cat([before, x], dim=1).transpose(1, 2)).transpose(1, 2)

    def independent(
        self, x: Float[Tensor, "b t e"], before: Float[Tensor, "b w e"]
    ) -> Float[Tensor, "b t e"]:
        """Convolve every token as if it came right after `before`; none sees another."""
        weight = self.conv.weight.squeeze(1)
        past = torch.einsum("bwe,ew->be", before, weight[:, :-1].to(before.dtype)).unsqueeze(1)
        y = past + x * weight[:, -1].to(x.dtype)
        return y if self.conv.bias is None else y + self.conv.bias.to(x.dtype)


def project(
    conv: ShortConvolution | None,
    x: Float[Tensor, "b t d"],
    projection: Callable[[Tensor], Tensor],
    conv_inputs: Float[Tensor, "b w d"] | None,
    *,
    independent: bool,
) -> tuple[Float[Tensor, "b t e"], Float[Tensor, "b w d"] | None]:
    """Project tokens and convolve them by `conv`, if any; also return the last inputs or None."""
    if conv is None:
        return projection(x), None
    return conv.project(x, projection, conv_inputs, independent=independent)

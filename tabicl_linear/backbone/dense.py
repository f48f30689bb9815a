"""The token-wise parts of a block, before and after the rule: plain, or through torch.compile."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch

from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Int, Tensor

if TYPE_CHECKING:
    from tabicl_linear.backbone.block import Block


class Projected(NamedTuple):
    """Tokens on their way into the rule.

    Attributes:
        inputs: Tokens as the mixer sees them.
        streams: Inputs of the rule.
        conv_inputs: What the convolution keeps of these tokens, if there is one.
    """

    inputs: Float[Tensor, "b t d"]
    streams: Streams
    conv_inputs: Float[Tensor, "b w d"] | None


class DenseParts(NamedTuple):
    """One way to compute the token-wise parts of a block.

    Attributes:
        project: From tokens to the inputs of the rule; see `project`.
        finish: From what the heads read to the tokens of the next block; see `finish`.
    """

    project: Callable[..., Projected]
    finish: Callable[..., Tensor]


def project(
    block: "Block",
    x: Float[Tensor, "b t d"],
    positions: Int[Tensor, " t"],
    conv_inputs: Float[Tensor, "b w d"] | None,
    *,
    independent: bool,
) -> Projected:
    """Norm (where it comes first) and projections of the mixer; arguments as the mixer's own."""
    inputs = block.mixer_norm(x) if block.norm_first else x
    return Projected(
        inputs, *block.mixer.project(inputs, positions, conv_inputs, independent=independent)
    )


def finish(
    block: "Block", x: Float[Tensor, "b t d"], heads: Float[Tensor, "b t h v"], came: Projected
) -> Float[Tensor, "b t d"]:
    """Output of the mixer, sums, norms and feed-forward layer.

    Args:
        block: The block.
        x: The tokens that entered it.
        heads: What they read.
        came: Them on their way into the rule.
    """
    mixed = block.mixer.output(heads, came.streams, came.inputs)
    x = x + mixed if block.norm_first else block.mixer_norm(x + mixed)
    if block.feed_forward is None or block.feed_forward_norm is None:
        return x
    if block.norm_first:
        return x + block.feed_forward(block.feed_forward_norm(x))
    return block.feed_forward_norm(x + block.feed_forward(x))


EAGER = DenseParts(project, finish)


@cache
def compiled() -> DenseParts:
    """Both through torch.compile, once for blocks of a kind and any number of tokens.

    The rule stays outside: its kernels are compiled already, or loops that would be unrolled.
    """
    return DenseParts(torch.compile(project, dynamic=True), torch.compile(finish, dynamic=True))

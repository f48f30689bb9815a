"""Our mixers beside flash-linear-attention's layers, with the settings of the paper.

Widths are smaller than the paper's, whose head sizes are part of `test_ops.py`: the interpreter's
recurrent kernels take a second for every few tokens. `weights` turns our parameters, or their
gradients, into the library's: what is fused here is cut there, and the other way round.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from fla import layers
from torch import nn

from tabicl_linear.mixers.base import LayerState, SequenceMixer
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.mixers.gated_delta import GatedDeltaNet
from tabicl_linear.mixers.gla import GatedLinearAttention
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.mixers.mamba2 import Mamba2
from tabicl_linear.readouts import Causal

Weights = Mapping[str, torch.Tensor]
EPS = 1e-6


class Pair(NamedTuple):
    """A mixer, the layer it must equal, and how weights go from one to the other.

    Attributes:
        ours: Makes our mixer.
        theirs: Makes the library's layer.
        weights: From named tensors of ours to named tensors of theirs.
        keys_first: Whether the layer keeps its state as [k, v] and not, as we do, as [v, k].
    """

    ours: Callable[[], SequenceMixer]
    theirs: Callable[[], nn.Module]
    weights: Callable[[Weights], dict[str, torch.Tensor]]
    keys_first: bool


def _delta(p: Weights) -> dict[str, torch.Tensor]:
    own = {
        **_cut(p["qkv.weight"], "q_proj.weight", "k_proj.weight", "v_proj.weight"),
        "b_proj.weight": p["write_rate.projection.weight"],
        "o_norm.weight": p["norm.weight"],
        "o_proj.weight": p["out.weight"],
    }
    if "conv.conv.weight" in p:
        own |= _cut(p["conv.conv.weight"], "q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight")
    return own


def _gated_delta(p: Weights) -> dict[str, torch.Tensor]:
    return {
        **_delta(p),
        "a_proj.weight": p["forget.projection.weight"],
        "A_log": p["forget.log_rate"],
        "dt_bias": p["forget.bias"],
        "g_proj.weight": p["gate.weight"],
    }


def _gla(p: Weights) -> dict[str, torch.Tensor]:
    own = {
        **_cut(p["qk.weight"], "q_proj.weight", "k_proj.weight"),
        "v_proj.weight": p["value.weight"],
        "gk_proj.0.weight": p["decay.0.weight"],
        "gk_proj.1.weight": p["decay.1.weight"],
        "gk_proj.1.bias": p["decay.1.bias"],
        "g_proj.weight": p["gate.weight"],
        "g_norm_swish_gate.weight": p["norm.weight"],
        "o_proj.weight": p["out.weight"],
    }
    if "conv.conv.weight" in p:
        # Queries, keys and values of one convolution, values being wider.
        widths = [len(p["qk.weight"]) // 2] * 2 + [len(p["value.weight"])]
        names = ("q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight")
        own |= dict(zip(names, p["conv.conv.weight"].split(widths), strict=True))
    return own


def _linear(p: Weights) -> dict[str, torch.Tensor]:
    return {
        **_cut(p["qkv.weight"], "q_proj.weight", "k_proj.weight", "v_proj.weight"),
        "norm.weight": p["norm.weight"],
        "o_proj.weight": p["out.weight"],
    }


def _mamba2(p: Weights) -> dict[str, torch.Tensor]:
    return {
        "in_proj.weight": torch.cat([p["gate.weight"], p["xbc.weight"], p["step.weight"]]),
        "conv1d.weight": p["conv.conv.weight"],
        "conv1d.bias": p["conv.conv.bias"],
        "A_log": p["log_rate"],
        "dt_bias": p["step_bias"],
        "D": p["skip"],
        "norm.weight": p["norm.weight"],
        "out_proj.weight": p["out.weight"],
    }


def _cut(fused: torch.Tensor, *names: str) -> dict[str, torch.Tensor]:
    return dict(zip(names, fused.chunk(len(names)), strict=True))


def _layer(kind: Callable[..., nn.Module], **settings: object) -> Callable[[], nn.Module]:
    return partial(kind, norm_eps=EPS, layer_idx=0, **settings)


PAIRS = {
    "DeltaNet": Pair(
        partial(DeltaNet, 32, 2),
        _layer(layers.DeltaNet, hidden_size=32, num_heads=2, use_short_conv=False),
        _delta,
        keys_first=True,
    ),
    "DeltaNet, convolution": Pair(
        partial(DeltaNet, 32, 2, conv_size=4),
        _layer(layers.DeltaNet, hidden_size=32, num_heads=2, conv_size=4),
        _delta,
        keys_first=True,
    ),
    "Gated DeltaNet": Pair(
        partial(GatedDeltaNet, 32, 2, head_dim=24),
        _layer(
            layers.GatedDeltaNet,
            hidden_size=32,
            num_heads=2,
            head_dim=24,
            expand_v=1,
            use_short_conv=False,
        ),
        _gated_delta,
        keys_first=False,
    ),
    "Gated DeltaNet, convolution": Pair(
        partial(GatedDeltaNet, 32, 2, head_dim=24, conv_size=4),
        _layer(
            layers.GatedDeltaNet, hidden_size=32, num_heads=2, head_dim=24, expand_v=1, conv_size=4
        ),
        _gated_delta,
        keys_first=False,
    ),
    "GLA, convolution": Pair(
        partial(GatedLinearAttention, 64, 2, conv_size=4),
        _layer(
            layers.GatedLinearAttention,
            hidden_size=64,
            num_heads=2,
            expand_k=0.5,
            use_short_conv=True,
            conv_size=4,
        ),
        _gla,
        keys_first=False,
    ),
    "GLA": Pair(
        partial(GatedLinearAttention, 64, 2),
        _layer(layers.GatedLinearAttention, hidden_size=64, num_heads=2, expand_k=0.5),
        _gla,
        keys_first=False,
    ),
    "linear attention": Pair(
        partial(LinearAttention, 64, 2, norm_eps=EPS),
        _layer(layers.LinearAttention, hidden_size=64, num_heads=2, feature_map="elu"),
        _linear,
        keys_first=True,
    ),
    "Mamba-2": Pair(
        partial(Mamba2, 64, 2, head_dim=16, state_dim=48),
        # The chunk only has to be small: the layer pads every sequence to a whole one.
        _layer(layers.Mamba2, hidden_size=64, head_dim=16, state_size=48, chunk_size=32),
        _mamba2,
        keys_first=False,
    ),
}


def build(pair: Pair) -> tuple[SequenceMixer, nn.Module]:
    """Both layers with the same weights, none of which leaves the outputs as they are."""
    ours, theirs = pair.ours(), pair.theirs()
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
            elif not name.endswith("log_rate"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    theirs.load_state_dict(pair.weights(dict(ours.named_parameters())), strict=True)
    return ours, theirs


def fit(mixer: SequenceMixer, x: torch.Tensor) -> tuple[torch.Tensor, LayerState]:
    """What the tokens of a context read under the causal readout, and the state they leave."""
    positions = torch.arange(x.shape[1])
    streams, conv_inputs = mixer.project(x, positions, None, independent=False)
    heads, state = Causal(mixer.num_heads).context(mixer.rule, streams, None)
    return mixer.output(heads, streams, x), LayerState(state, conv_inputs, x.shape[1])


def predict(mixer: SequenceMixer, x: torch.Tensor, state: LayerState) -> torch.Tensor:
    """What queries read after the context of `state`, each alone."""
    positions = torch.full((x.shape[1],), state.num_tokens)
    streams, _ = mixer.project(x, positions, state.conv_inputs, independent=True)
    heads = Causal(mixer.num_heads).query(mixer.rule, streams, state.rule_state)
    return mixer.output(heads, streams, x)

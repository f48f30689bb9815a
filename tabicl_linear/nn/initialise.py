"""Initialisation of recurrent blocks: the default, and gates that start open."""

from torch import nn

STD = 0.02


def initialise_(module: nn.Module) -> None:
    """Draw weights of linear layers and convolutions from N(0, 0.02^2) and zero their biases.

    Norms keep their weights of one. Source: measured on the authors' freshly built models.
    """
    for layer in module.modules():
        # Models on the meta device serve for their sizes only; drawing would take most of the time.
        if isinstance(layer, nn.Linear | nn.Conv1d) and not layer.weight.is_meta:
            nn.init.normal_(layer.weight, std=STD)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def open_output_gate_(gate: nn.Linear) -> None:
    """Make silu(W x + b) start at one for every token (mimetic initialisation, section 4.2)."""
    nn.init.zeros_(gate.weight)
    nn.init.constant_(gate.bias, SILU_ONE)


def open_decay_gate_(decay: nn.Sequential, *, learns: bool) -> None:
    """Make a low-rank decay gate start close to one for every token (section 4.2).

    Args:
        decay: Two linear layers, the last with a bias.
        learns: Zero only the last layer's weights, so that gates can learn to depend on tokens. The
            authors zero both layers: then both gradients stay zero and only the bias learns.
    """
    first, last = decay
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    if not learns:
        nn.init.zeros_(first.weight)
    nn.init.zeros_(last.weight)
    nn.init.constant_(last.bias, OPEN_LOGIT)


SILU_ONE = 1.27846
"""silu of this is one."""
OPEN_LOGIT = 6.0
"""sigmoid of this is 0.9975; GLA takes its 16th root."""

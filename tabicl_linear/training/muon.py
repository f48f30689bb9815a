"""Muon for hidden matrices and AdamW for all other parameters, as one optimiser."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Float, Tensor

MATRICES = {
    "*backbone.*.qkv.weight": 3,
    "*backbone.*.qk.weight": 2,
    "*backbone.*.query.weight": 1,
    "*backbone.*.keys_values.weight": 2,
    "*backbone.*.value.weight": 1,
    "*backbone.*.gate.weight": 1,
    "*backbone.*.out.weight": 1,
    "*backbone.*.gate_and_up.weight": 2,
    "*backbone.*.up.weight": 1,
    "*backbone.*.down.weight": 1,
    "*head.0.weight": 1,
}
"""Name patterns of hidden matrices, and the number of equal-sized projections stacked in each.

AdamW updates everything else: per-head and low-rank gates, convolutions, the input projection of
Mamba-2's convolution (its three parts differ in size), embeddings, the last layer of the head, and
all parameters that are not matrices.
"""
OF_ADAMW = ("lr", "weight_decay", "betas", "eps")


class MuonAdamW(Optimizer):
    """Muon for hidden matrices, `torch.optim.AdamW` for the rest.

    Muon steps along the momentum with its singular values set to about one (`orthogonalised`),
    times 0.2 sqrt(max(rows, columns)), which gives updates the size of AdamW's (arXiv 2502.16982).
    This is `torch.optim.Muon` with `match_rms_adamw`, except for the dtype of its products.
    Projections stacked in one matrix are orthogonalised separately. Momentum is kept in the
    parameters' dtype. Weight decay is decoupled in both.

    The first group of parameters is Muon's, the second AdamW's; either may be empty.

    Args:
        params: Parameters with their names, such as `model.named_parameters()`.
        lr: Learning rate of both.
        adamw_lr: Learning rate of AdamW, if different.
        weight_decay: Weight decay of both.
        momentum: Share of the previous momentum that Muon keeps.
        nesterov: Whether Muon uses Nesterov momentum.
        ns_steps: Newton-Schulz iterations.
        betas: Decay rates of AdamW's averages.
        eps: Added to AdamW's denominator.
        matrices: `{pattern: count}`: shell patterns for the names of Muon's parameters, and the
            number of equal-sized matrices stacked in each. The first pattern that matches a name
            applies. `MATRICES` if left out.

    Raises:
        ConfigError: Parameters have no names, no given pattern matches one, or a pattern matches
            one that cannot be divided into that many matrices.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        adamw_lr: float | None = None,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-8,
        matrices: dict[str, int] | None = None,
    ) -> None:
        if lr < 0 or not 0 <= momentum < 1 or not 1 <= ns_steps < 100:
            raise ConfigError(
                f"lr={lr}, momentum={momentum}, ns_steps={ns_steps}: use a learning rate of at "
                "least 0, a momentum from 0 to below 1 and 1 to 99 steps."
            )
        hidden, parts, rest = _divided(params, MATRICES if matrices is None else matrices)
        if matrices and not hidden:
            raise ConfigError(
                f"matrices: {', '.join(matrices)} match no parameter, such as {rest[0][0]}; a "
                "pattern matches a whole name, so begin it with *."
            )
        of_muon = {
            "params": hidden,
            "parts": parts,
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_steps": ns_steps,
        }
        of_adamw = {
            "params": rest,
            "lr": lr if adamw_lr is None else adamw_lr,
            "betas": betas,
            "eps": eps,
        }
        super().__init__([of_muon, of_adamw], {"weight_decay": weight_decay})
        self._adamw = self._make_adamw()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore groups and state from a checkpoint or copy, including those of AdamW."""
        super().__setstate__(state)
        self._adamw = self._make_adamw()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient.

        Args:
            closure: Recomputes loss and gradients before the update; None uses those present.

        Returns:
            The value that the closure returns.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_matrices(self.param_groups[0])
        self._adamw.step()
        return loss

    def _make_adamw(self) -> AdamW:
        """AdamW on the second group; it shares the group and state dictionaries of this one."""
        group = self.param_groups[1]
        adamw = AdamW([group], **{key: group[key] for key in OF_ADAMW})
        adamw.state = self.state
        return adamw

    def _step_matrices(self, group: dict[str, Any]) -> None:
        """Take Muon's step; matrices of one shape are orthogonalised together, as a batch."""
        matrices = defaultdict[torch.Size, list[Tensor]](list)
        updates = defaultdict[torch.Size, list[Tensor]](list)
        for parameter, count in zip(group["params"], group["parts"], strict=True):
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            momentum = state["momentum_buffer"].lerp_(parameter.grad, 1 - group["momentum"])
            update = (
                parameter.grad.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum
            )
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            shape = parameter.chunk(count)[0].shape
            matrices[shape] += parameter.chunk(count)
            updates[shape] += update.chunk(count)
        for shape, of_shape in matrices.items():
            directions = orthogonalised(torch.stack(updates[shape]), group["ns_steps"])
            rate = 0.2 * max(shape) ** 0.5 * group["lr"]
            for matrix, direction in zip(of_shape, directions, strict=True):
                matrix.add_(direction, alpha=-rate)


def orthogonalised(matrices: Float[Tensor, "m a b"], steps: int = 5) -> Float[Tensor, "m a b"]:
    """Matrices with their singular values set to about one, by Newton-Schulz iterations.

    Products are computed in bfloat16 on CUDA and in the matrices' dtype elsewhere: on processors
    without bfloat16 instructions, bfloat16 products take 20 to 40 times as long.

    Source: Jordan et al. (2024), "Muon: an optimizer for hidden layers in neural networks", with
    its coefficients.
    """
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    if matrices.shape[-2] > matrices.shape[-1]:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, polynomial, x, beta=3.4445)
    x = x.mT if matrices.shape[-2] > matrices.shape[-1] else x
    return x.to(matrices.dtype)


Named = tuple[str, nn.Parameter]


def _divided(
    params: Iterable[Any], matrices: Mapping[str, int]
) -> tuple[list[Named], list[int], list[Named]]:
    """Named parameters for Muon, the number of matrices in each, and those for AdamW."""
    hidden, parts, rest = list[Named](), list[int](), list[Named]()
    for named in params:
        if not isinstance(named, tuple):
            raise ConfigError(
                "MuonAdamW distinguishes hidden matrices from other parameters by name; give it "
                "model.named_parameters()."
            )
        name, parameter = named
        pattern = next((pattern for pattern in matrices if fnmatchcase(name, pattern)), None)
        if pattern is None:
            rest.append(named)
            continue
        _check(name, parameter, pattern, matrices[pattern])
        hidden.append(named)
        parts.append(matrices[pattern])
    return hidden, parts, rest


def _check(name: str, parameter: Float[Tensor, "..."], pattern: str, count: int) -> None:
    if parameter.ndim != 2 or count < 1 or parameter.shape[0] % count:
        raise ConfigError(
            f"matrices: {pattern!r}: {count} matches {name} of shape {tuple(parameter.shape)}, "
            "which is not that many matrices of equal size; give other patterns or numbers."
        )

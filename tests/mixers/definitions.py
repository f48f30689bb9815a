"""Every mixer as formulas for one token of one head, in float64 and without the package.

The paper's recurrences (sections 2.2, 4.4, B.1 and B.5), with the projections, gates and norms that
its table leaves out as the authors' layers have them. Weights come by the names of our parameters;
no forward of the package is called. Slow on purpose: one line per formula.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


class Head(NamedTuple):
    """What a token brings to one head."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor | None = None
    alpha: Tensor | None = None  # a number, or one for each key channel


class Matrix(NamedTuple):
    """A state S [v, k], with z [k] where Equation 2 has its normaliser."""

    S: Tensor
    z: Tensor | None = None


class Written(NamedTuple):
    """All keys and values so far, for what keeps them or needs all of them at once."""

    keys: list[Tensor]
    values: list[Tensor]


Memory = Matrix | Written


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def softplus(x: Tensor) -> Tensor:
    return torch.log(1 + torch.exp(x))


def phi(x: Tensor) -> Tensor:
    """elu(x) + 1."""
    return torch.where(x > 0, x + 1, torch.exp(x))


def unit(x: Tensor) -> Tensor:
    return x / torch.sqrt(x @ x + 1e-6)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * x / torch.sqrt(x @ x / len(x) + eps)


def cut(x: Tensor, *widths: int) -> list[Tensor]:
    return [x[sum(widths[:i]) : sum(widths[: i + 1])] for i in range(len(widths))]


class Definition:
    """One mixer: what a token brings, how it is written, what is read, what comes out.

    Args:
        weights: Parameters by name.
        num_heads: Heads.
        eps: Epsilon of the output norm.
        c: Constant of the write-rate decay, if any.
        window: Tokens that the short convolution looks at, if there is one.
    """

    def __init__(
        self,
        weights: Weights,
        num_heads: int,
        *,
        eps: float = 1e-6,
        c: float | None = None,
        window: int | None = None,
    ) -> None:
        self.w = weights
        self.num_heads = num_heads
        self.eps = eps
        self.c = c
        self.window = window

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        """Of the last token of `seen`, with `time` tokens written before it."""
        raise NotImplementedError

    def write(self, memory: Memory | None, x: Head) -> Memory:
        """The memory after one more token."""
        raise NotImplementedError

    def read(self, memory: Memory, q: Tensor) -> Tensor:
        return memory.S @ q

    def merge(self, reads: list[Tensor], heads: list[Head], x: Tensor) -> Tensor:
        return self.w["out.weight"] @ torch.cat([self.normed(o) for o in reads])

    def normed(self, o: Tensor) -> Tensor:
        return rms(o, self.w["norm.weight"], self.eps)

    def qkv(self, seen: list[Tensor]) -> list[tuple[Tensor, ...]]:
        """Queries, keys and values of each head, all of one width."""
        parts = self.projected(seen, self.w["qkv.weight"]).chunk(3)
        return list(zip(*(part.chunk(self.num_heads) for part in parts), strict=True))

    def projected(self, seen: list[Tensor], weight: Tensor) -> Tensor:
        """W x of the last token, or sum_j w_j W x_{t-size+1+j} where there is a convolution."""
        if self.window is None:
            return weight @ seen[-1]
        kernel = self.w["conv.conv.weight"][:, 0]
        assert kernel.shape[1] == self.window
        y = torch.zeros(len(weight), dtype=torch.float64)
        for back in range(min(self.window, len(seen))):
            y = y + kernel[:, -1 - back] * (weight @ seen[-1 - back])
        return y

    def scale(self, k: Tensor) -> float:
        return len(k) ** -0.5


def outer_sum(memory: Memory | None, x: Head) -> tuple[Tensor, Tensor]:
    """S before a token (zero at first), and v k^T."""
    new = torch.outer(x.v, x.k)
    return (torch.zeros_like(new) if memory is None else memory.S), new


class OutputGate(Definition):
    """Mixers whose normed reads pass a gate silu(W x), with a bias where it starts open."""

    def merge(self, reads: list[Tensor], heads: list[Head], x: Tensor) -> Tensor:
        logits = self.w["gate.weight"] @ x
        if "gate.bias" in self.w:
            logits = logits + self.w["gate.bias"]
        return self.w["out.weight"] @ (torch.cat([self.normed(o) for o in reads]) * silu(logits))


class Linear(Definition):
    """S_t = S_{t-1} + v_t phi(k_t)^T, o_t = S_t phi(q_t) (Equation 2 with Z = 1)."""

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        return [Head(phi(q) * self.scale(k), phi(k), v) for q, k, v in self.qkv(seen)]

    def write(self, memory: Memory | None, x: Head) -> Memory:
        S, new = outer_sum(memory, x)
        return Matrix(S + new)


class NormalisedLinear(Linear):
    """The same divided by Z_t = sum_j phi(q_t) phi(k_j)."""

    def write(self, memory: Memory | None, x: Head) -> Memory:
        return Matrix(super().write(memory, x).S, x.k if memory is None else memory.z + x.k)

    def read(self, memory: Memory, q: Tensor) -> Tensor:
        return memory.S @ q / (memory.z @ q + 1e-6)


class GatedLinear(OutputGate):
    """S_t = S_{t-1} Diag(alpha_t) + v_t k_t^T, alpha = sigmoid(W2 W1 x + b)^(1/16), silu gate."""

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        weight = torch.cat([self.w["qk.weight"], self.w["value.weight"]])
        y = self.projected(seen, weight)
        if self.window is not None:
            y = silu(y)
        width, value_width = len(self.w["qk.weight"]) // 2, len(self.w["value.weight"])
        logits = self.w["decay.1.weight"] @ (self.w["decay.0.weight"] @ seen[-1])
        alpha = sigmoid(logits + self.w["decay.1.bias"]) ** (1 / 16)
        parts = [part.chunk(self.num_heads) for part in cut(y, width, width, value_width)]
        return [
            Head(q * self.scale(k), k, v, alpha=a)
            for q, k, v, a in zip(*parts, alpha.chunk(self.num_heads), strict=True)
        ]

    def write(self, memory: Memory | None, x: Head) -> Memory:
        S, new = outer_sum(memory, x)
        return Matrix(S @ torch.diag(x.alpha) + new)


class Delta(Definition):
    """S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, beta = sigmoid(w x) c / (t + c)."""

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        beta = sigmoid(self.w["write_rate.projection.weight"] @ seen[-1])
        beta = beta if self.c is None else beta * self.c / (time + self.c)
        return [
            Head(unit(silu(q)) * self.scale(k), unit(silu(k)), silu(v), beta[h])
            for h, (q, k, v) in enumerate(self.qkv(seen))
        ]

    def write(self, memory: Memory | None, x: Head) -> Memory:
        S, new = outer_sum(memory, x)
        alpha = 1.0 if x.alpha is None else x.alpha
        eye = torch.eye(len(x.k), dtype=torch.float64)
        return Matrix(S @ (alpha * (eye - x.beta * torch.outer(x.k, x.k))) + x.beta * new)


class GatedDelta(OutputGate, Delta):
    """The same with S_{t-1} alpha_t, alpha = exp(-exp(A) softplus(w x + b)), and a silu gate."""

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        w = self.w
        step = softplus(w["forget.projection.weight"] @ seen[-1] + w["forget.bias"])
        alpha = torch.exp(-torch.exp(w["forget.log_rate"]) * step)
        return [x._replace(alpha=alpha[h]) for h, x in enumerate(super().heads(seen, time))]


class KimiDelta(Delta):
    """S_t = S_{t-1} Diag(alpha_t) (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, gates of low rank.

    alpha = exp(-exp(A) softplus(W2 W1 x + b)) for each key channel, output gate sigmoid of another.
    """

    def low_rank(self, name: str, x: Tensor) -> Tensor:
        w = self.w
        return w[f"{name}.1.weight"] @ (w[f"{name}.0.weight"] @ x) + w[f"{name}.1.bias"]

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        steps = softplus(self.low_rank("forget", seen[-1])).chunk(self.num_heads)
        rates = torch.exp(self.w["log_rate"])
        return [
            x._replace(alpha=torch.exp(-rates[h] * steps[h]))
            for h, x in enumerate(super().heads(seen, time))
        ]

    def write(self, memory: Memory | None, x: Head) -> Memory:
        S, new = outer_sum(memory, x)
        eye = torch.eye(len(x.k), dtype=torch.float64)
        kept = torch.diag(x.alpha) @ (eye - x.beta * torch.outer(x.k, x.k))
        return Matrix(S @ kept + x.beta * new)

    def merge(self, reads: list[Tensor], heads: list[Head], x: Tensor) -> Tensor:
        gate = sigmoid(self.low_rank("gate", x))
        return self.w["out.weight"] @ (torch.cat([self.normed(o) for o in reads]) * gate)


class DeltaProduct(Delta):
    """Delta with two writes a token, each with its own key, value and rate."""

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        x, h = seen[-1], self.num_heads
        rates = sigmoid(self.w["write_rate.projection.weight"] @ x)
        rates = (rates if self.c is None else rates * self.c / (time + self.c)).reshape(h, 2)
        queries = (self.w["query.weight"] @ x).reshape(h, -1)
        keys, values = (self.w["keys_values.weight"] @ x).reshape(2, h, 2, -1)
        result = []
        for q, k, v, beta in zip(queries, keys, values, rates, strict=True):
            k = torch.stack([unit(silu(key)) for key in k])
            result.append(Head(unit(silu(q)) * len(q) ** -0.5, k, silu(v), beta))
        return result

    def write(self, memory: Memory | None, x: Head) -> Memory:
        for k, v, beta in zip(x.k, x.v, x.beta, strict=True):
            memory = super().write(memory, Head(x.q, k, v, beta))
        return memory


class Mamba(Definition):
    """S_t = exp(-exp(A) dt_t) S_{t-1} + dt_t x_t B_t^T, y_t = S_t C_t + D x_t, norm(y silu(z))."""

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        w, inner = self.w, len(self.w["gate.weight"])
        y = silu(self.projected(seen, w["xbc.weight"]) + w["conv.conv.bias"])
        state = (len(y) - inner) // 2
        x, B, C = cut(y, inner, state, state)
        dt = softplus(w["step.weight"] @ seen[-1] + w["step_bias"])
        alpha = torch.exp(-torch.exp(w["log_rate"]) * dt)
        return [Head(C, B, v, dt[h], alpha[h]) for h, v in enumerate(x.chunk(self.num_heads))]

    def write(self, memory: Memory | None, x: Head) -> Memory:
        S, new = outer_sum(memory, x)
        return Matrix(x.alpha * S + x.beta * new)

    def merge(self, reads: list[Tensor], heads: list[Head], x: Tensor) -> Tensor:
        y = [o + D * head.v for o, D, head in zip(reads, self.w["skip"], heads, strict=True)]
        gated = torch.cat(y) * silu(self.w["gate.weight"] @ x)
        return self.w["out.weight"] @ self.normed(gated)


class Keeper(Definition):
    """Mixers that keep every key and value."""

    def write(self, memory: Memory | None, x: Head) -> Memory:
        keys, values = memory or Written([], [])
        return Written([*keys, x.k], [*values, x.v])


class Attention(Keeper):
    """o = sum_j softmax_j(q k_j / sqrt(key_dim)) v_j, without a norm."""

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        return [Head(q * self.scale(k), k, v) for q, k, v in self.qkv(seen)]

    def read(self, memory: Memory, q: Tensor) -> Tensor:
        weights = [torch.exp(q @ k) for k in memory.keys]
        return sum(a * v for a, v in zip(weights, memory.values, strict=True)) / sum(weights)

    def normed(self, o: Tensor) -> Tensor:
        return o


class ScaledRidge(Keeper):
    """S = V^T K (K^T K + n lambda I)^-1 over phi(k), o = S phi(q), lambda = 0.3."""

    def heads(self, seen: list[Tensor], time: int) -> list[Head]:
        return [Head(phi(q) * self.scale(k), phi(k), v) for q, k, v in self.qkv(seen)]

    def read(self, memory: Memory, q: Tensor) -> Tensor:
        K, V = torch.stack(memory.keys), torch.stack(memory.values)
        penalty = self.penalty(len(K)) * torch.eye(K.shape[1], dtype=torch.float64)
        return V.T @ K @ torch.linalg.inv(K.T @ K + penalty) @ q

    def penalty(self, rows: int) -> float:
        return 0.3 * rows


class PlainRidge(ScaledRidge):
    """Penalty lambda."""

    def penalty(self, rows: int) -> float:
        return 0.3


class LeastSquares(ScaledRidge):
    """No penalty: the inverse is the pseudo-inverse where there are more rows than channels."""

    def penalty(self, rows: int) -> float:
        return 0.0

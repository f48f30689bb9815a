"""Readouts, blocks, stacks and cells as plain loops over tokens, in float64.

One sequence of one task at a time: a list of tokens [d]. Only parameters are read, by name.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from mixers.definitions import Definition, Head, Matrix, Memory, Weights, rms, silu
from torch import Tensor, nn

Tokens = list[Tensor]


class State(NamedTuple):
    """What a layer keeps: a memory per head, the inputs of its mixer so far, and their number."""

    memories: list[Memory | None]
    past: Tokens
    time: int


@dataclass
class Layer:
    """One block: readout, residual sums, norms and feed-forward layer around a mixer.

    Attributes:
        mixer: The formulas of the mixer.
        readout: Name of the readout.
        weights: Parameters of the block by name.
        norm: rms (before each sublayer), layer (after each sum) or none.
        feed_forward: swiglu, gelu or none.
    """

    mixer: Definition
    readout: str
    weights: Weights
    norm: str = "none"
    feed_forward: str = "none"

    def start(self) -> State:
        return State([None] * self.mixer.num_heads, [], 0)

    def fit(self, xs: Tokens, state: State) -> tuple[Tokens, State]:
        """Write all tokens; their new hidden tokens, and the state."""
        if self.readout != "bidirectional":
            return self.write(xs, state)
        forward, one = self.write(xs, state)
        backward, two = self.write(xs[::-1], state)
        outputs = [(x + y) / 2 for x, y in zip(forward, backward[::-1], strict=True)]
        memories = [
            Matrix(*(None if u is None else (u + v) / 2 for u, v in zip(a, b, strict=True)))
            for a, b in zip(one.memories, two.memories, strict=True)
        ]
        past = [(x + y) / 2 for x, y in zip(one.past, two.past, strict=True)]
        return outputs, State(memories, past, one.time)

    def write(self, xs: Tokens, state: State) -> tuple[Tokens, State]:
        """One direction."""
        memories, past, time = list(state.memories), list(state.past), state.time
        brought, prefixes = [], []
        for x in xs:
            past = [*past, self.before(x, "mixer_norm")]
            heads = self.mixer.heads(past, time)
            memories = [self.mixer.write(m, h) for m, h in zip(memories, heads, strict=True)]
            brought.append((x, past[-1], heads))
            prefixes.append(memories)
            time += 1
        if self.readout.startswith("final_state"):
            prefixes = [memories] * len(xs)
        outputs = [self.finish(*b, m) for b, m in zip(brought, prefixes, strict=True)]
        return outputs, State(memories, past, time)

    def predict(self, x: Tensor, state: State) -> Tensor:
        """One query, which leaves nothing behind."""
        inputs = self.before(x, "mixer_norm")
        heads = self.mixer.heads([*state.past, inputs], state.time)
        memories = state.memories
        if self.readout in ("causal", "causal_frobenius", "bidirectional"):
            memories = [self.mixer.write(m, h) for m, h in zip(memories, heads, strict=True)]
        return self.finish(x, inputs, heads, memories)

    def finish(
        self, x: Tensor, inputs: Tensor, heads: list[Head], memories: list[Memory]
    ) -> Tensor:
        memories = [self.rescaled(h, m) for h, m in enumerate(memories)]
        reads = [self.mixer.read(m, head.q) for m, head in zip(memories, heads, strict=True)]
        x = self.after(x + self.mixer.merge(reads, heads, inputs), "mixer_norm")
        if self.feed_forward == "none":
            return x
        own = self.feed(self.before(x, "feed_forward_norm"))
        return self.after(x + own, "feed_forward_norm")

    def rescaled(self, head: int, memory: Memory) -> Memory:
        """S alpha_h sqrt(d_v) / max(|S|_F, eps) where the readout normalises."""
        if not self.readout.endswith("frobenius"):
            return memory
        S = memory.S
        norm = torch.sqrt((S * S).sum())
        alpha = torch.exp(self.weights["readout.state_norm.log_scale"][head])
        return Matrix(S * alpha * len(S) ** 0.5 / norm.clamp(min=1e-5), memory.z)

    def feed(self, x: Tensor) -> Tensor:
        if self.feed_forward == "gelu":
            hidden = self.weights["feed_forward.up.weight"] @ x
            hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        else:
            gate, up = (self.weights["feed_forward.gate_and_up.weight"] @ x).chunk(2)
            hidden = silu(gate) * up
        return self.weights["feed_forward.down.weight"] @ hidden

    def before(self, x: Tensor, norm: str) -> Tensor:
        return rms(x, self.weights[f"{norm}.weight"], 1e-6) if self.norm == "rms" else x

    def after(self, x: Tensor, norm: str) -> Tensor:
        if self.norm != "layer":
            return x
        centred = x - x.mean()
        return centred / torch.sqrt(centred @ centred / len(x) + 1e-6)


def mixed_cells(cells: Tokens, weights: Weights, num_heads: int) -> Tokens:
    """The cells of one row after attention across them: x + W softmax(q k) v of norm(x)."""
    inputs = [rms(x, weights["norm.weight"], 1e-6) for x in cells]
    qkv = [(weights["qkv.weight"] @ x).chunk(3) for x in inputs]
    mixed = []
    for x, (query, _, _) in zip(cells, qkv, strict=True):
        heads = []
        for h, q in enumerate(query.chunk(num_heads)):
            keys = [k.chunk(num_heads)[h] for _, k, _ in qkv]
            values = [v.chunk(num_heads)[h] for _, _, v in qkv]
            scores = [torch.exp(q @ k / len(q) ** 0.5) for k in keys]
            heads.append(sum(a * v for a, v in zip(scores, values, strict=True)) / sum(scores))
        mixed.append(x + weights["out.weight"] @ torch.cat(heads))
    return mixed


class Stack:
    """Layers in order over the cells of rows: tokens are `rows[i][cell]`.

    Args:
        backbone: Where the parameters are.
        formulas: Of the mixer of every layer.
        num_heads: Heads of mixers and of the attention across cells.
        every: Layers from one attention across cells to the next.
        blocks: Other attributes of every layer.
    """

    def __init__(
        self,
        backbone: nn.Module,
        formulas: type[Definition],
        num_heads: int,
        *,
        every: int = 2,
        **blocks: str,
    ) -> None:
        self.weights = dict(backbone.named_parameters())
        self.num_heads = num_heads
        self.every = every
        self.layers = []
        for block in backbone.blocks:
            own = dict(block.named_parameters())
            mixer = {name.removeprefix("mixer."): weight for name, weight in own.items()}
            self.layers.append(Layer(formulas(mixer, num_heads), weights=own, **blocks))

    def fit(self, rows: list[Tokens]) -> tuple[list[Tokens], list[list[State]]]:
        """Hidden tokens of context rows, and a state for every layer and cell."""
        states = []
        for i, layer in enumerate(self.layers):
            rows = [self.across(i, cells) for cells in rows]
            start = self.start(i)
            fitted = [layer.fit(list(column), start) for column in zip(*rows, strict=True)]
            rows = [list(cells) for cells in zip(*(xs for xs, _ in fitted), strict=True)]
            states.append([state for _, state in fitted])
        return [self.last(cells) for cells in rows], states

    def predict(self, cells: Tokens, states: list[list[State]]) -> Tokens:
        """Hidden tokens of one query row."""
        for i, (layer, own) in enumerate(zip(self.layers, states, strict=True)):
            cells = self.across(i, cells)
            cells = [layer.predict(x, state) for x, state in zip(cells, own, strict=True)]
        return self.last(cells)

    def start(self, layer: int) -> State:
        """Nothing, or a learned matrix for each head."""
        start = self.layers[layer].start()
        learned = self.weights.get(f"learned.{layer}")
        return start if learned is None else start._replace(memories=list(map(Matrix, learned)))

    def across(self, layer: int, cells: Tokens) -> Tokens:
        prefix = f"cell_attention.{layer // self.every}."
        own = {k.removeprefix(prefix): w for k, w in self.weights.items() if k.startswith(prefix)}
        return cells if layer % self.every or not own else mixed_cells(cells, own, self.num_heads)

    def last(self, cells: Tokens) -> Tokens:
        if "final_norm.weight" not in self.weights:
            return cells
        return [rms(x, self.weights["final_norm.weight"], 1e-6) for x in cells]

"""How much predictions depend on the order of the context rows."""

import pandas as pd
import torch
from torch.nn.functional import one_hot

from tabicl_linear.errors import DataError
from tabicl_linear.model import InContextModel
from tabicl_linear.types import Bool, Float, Int, Tensor


@torch.no_grad()
def order_sensitivity(
    model: InContextModel,
    x: Float[Tensor, "b c m"],
    y: Int[Tensor, "b c"],
    queries: Float[Tensor, "b q m"],
    *,
    categorical: Bool[Tensor, "b m"] | None = None,
    permutations: int = 8,
    seed: int = 0,
) -> pd.DataFrame:
    """Spread of predictions over permutations of the context rows.

    A model whose state is a sum over rows predicts the same in every order. Recurrent models do
    not, nor do final-state readouts of delta rules.

    Args:
        model: The model.
        x: Context rows.
        y: Their classes.
        queries: Rows to predict.
        categorical: Which columns hold category codes.
        permutations: Number of orders to compare, at least two; the first is that of `x`.
        seed: Determines the other orders.

    Returns:
        Columns task, query and

        - spread: standard deviation over orders of a class's probability, mean over classes.
        - total_variation: half the sum of absolute differences between an order's probabilities
          and the mean prediction, mean over orders; from 0 to 1.
        - agreement: share of the orders whose predicted class is the most frequent one.

    Raises:
        DataError: Fewer than two orders.

    Example:
        >>> import torch
        >>> from tabicl_linear import build_task
        >>> from tabicl_linear.analysis import order_sensitivity
        >>> small = ["model.architecture.depth=1", "model.architecture.dim=32"]
        >>> model = build_task(overrides=small).model
        >>> x, y = torch.randn(1, 30, 4), torch.randint(0, 3, (1, 30))
        >>> table = order_sensitivity(model, x[:, :20], y[:, :20], x[:, 20:])
        >>> len(table), bool((table.spread > 0).all())
        (10, True)
    """
    if permutations < 2:
        raise DataError(f"permutations={permutations}: give at least 2 orders to compare.")
    generator, rows = torch.Generator().manual_seed(seed), x.shape[1]
    others = (torch.randperm(rows, generator=generator) for _ in range(permutations - 1))
    states = (
        model.fit(x[:, order], y[:, order], categorical=categorical)
        for order in (torch.arange(rows), *others)
    )
    p = torch.stack([model.predict(state, queries).double().softmax(-1) for state in states])
    numbers = [range(1, n + 1) for n in p.shape[1:3]]
    index = pd.MultiIndex.from_product(numbers, names=["task", "query"])
    cells = {name: z.flatten().cpu().numpy() for name, z in _spreads(p).items()}
    return pd.DataFrame(cells, index=index).reset_index()


def _spreads(p: Float[Tensor, "o b q y"]) -> dict[str, Float[Tensor, "b q"]]:
    """Spread, total variation and agreement of the probabilities after each order."""
    votes = one_hot(p.argmax(-1), p.shape[-1]).double().mean(0)
    return {
        "spread": p.std(0).mean(-1),
        "total_variation": (p - p.mean(0)).abs().sum(-1).mean(0) / 2,
        "agreement": votes.amax(-1),
    }

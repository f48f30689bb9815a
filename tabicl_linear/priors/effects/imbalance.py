"""Imbalanced classes: rows are kept with a probability that depends on their class."""

import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.base import Tasks
from tabicl_linear.priors.classes import reindex_classes
from tabicl_linear.types import Tensor

SURPLUS = 1.5
"""Rows that are drawn for each row that is kept."""
MAX_SPREAD = 2.5


def keep_rows(tasks: Tasks, num_rows: int, num_classes: int, generator: torch.Generator) -> Tasks:
    """Keep `num_rows` rows of each task, drawn without replacement with weights by class.

    The logarithms of the weights are normal, with a standard deviation U(0, 2.5) for each task. The
    first rows of the classes 0 and 1 are always kept, because a task needs two classes.
    """
    b, n, m = tasks.x.shape
    device = tasks.x.device
    spread = draws.uniform(b, 1, generator=generator) * MAX_SPREAD
    weight = draws.normal(b, num_classes, generator=generator) * spread
    noise = -draws.uniform(b, n, generator=generator).clamp_(min=1e-30).log_()
    # The n smallest of -log(u) / w are n draws without replacement with weights w.
    key = noise.log_() - weight.gather(1, tasks.y)
    position = torch.arange(n, device=device).expand(b, n)
    for label in (0, 1):
        first = position.masked_fill(tasks.y != label, n).amin(1, keepdim=True)
        key.scatter_(1, first, -torch.inf)
    rows: Tensor = key.topk(num_rows, 1, largest=False).indices.sort(1).values
    x = tasks.x.gather(1, rows.unsqueeze(2).expand(-1, -1, m))
    y = reindex_classes(tasks.y.gather(1, rows), num_classes)
    return Tasks(x, y, tasks.categorical)

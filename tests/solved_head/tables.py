"""A small context with everything a column may be: numbers, few values, codes, missing cells."""

from typing import NamedTuple

import torch

from experiments.solved_head.class_statistics import ClassStatistics, folds
from experiments.solved_head.network import LearnedFeatures, LearnedOptions

TASKS, ROWS, COLUMNS, CLASSES = 2, 43, 4, 3


class Context(NamedTuple):
    z: torch.Tensor
    present: torch.Tensor
    y: torch.Tensor
    fold: torch.Tensor
    categorical: torch.Tensor
    slots: torch.Tensor

    def rows(self, order):
        of_rows = (part[:, order] for part in self[:4])
        return Context(*of_rows, self.categorical, self.slots)

    def statistics(self):
        empty = ClassStatistics.empty(self.z, self.present, self.slots)
        return empty.plus(self.z, self.present, self.y, self.fold)


def context(seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(TASKS, ROWS, COLUMNS, generator=generator, dtype=torch.float64)
    z[..., 1] = z[..., 1].round()
    z[..., 2] = (3 * z[..., 2]).round().abs()
    present = torch.rand(z.shape, generator=generator) > 0.1
    y = torch.randint(CLASSES, (TASKS, ROWS), generator=generator)
    categorical = torch.tensor([[False, False, True, False]]).expand(TASKS, -1)
    slots = torch.arange(CLASSES).expand(TASKS, -1)
    return Context(z.where(present, 0.0), present, y, folds(TASKS, ROWS), categorical, slots)


def network():
    """One whose blocks do something, as those of a new one do not."""
    torch.manual_seed(0)
    made = LearnedFeatures(LearnedOptions(dim=8, depth=2, num_heads=2, hidden_dim=8)).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def features(made, rows, seen):
    with torch.no_grad():
        return made(rows.z, rows.present, rows.categorical, seen, rows.fold)

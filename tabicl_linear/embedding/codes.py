"""How values and labels are coded, for every embedding alike."""

from typing import NamedTuple

from tabicl_linear.embedding.labels import LabelCode, Labels, OneHotLabels, ScalarLabels
from tabicl_linear.embedding.values import FEATURES, ValueCode


class Codes(NamedTuple):
    """What stands for a value and for a label.

    Attributes:
        value: linear: the value. fourier: Fourier features beside it.
        label: scalar: the class index. one_hot: a learned vector for each class and for unknown.
        num_classes: Most classes of a table.
    """

    value: ValueCode
    label: LabelCode
    num_classes: int

    @property
    def features_per_value(self) -> int:
        """Features of one value."""
        return FEATURES[self.value]

    def make_labels(self, dim: int) -> Labels:
        """Vectors of labels, `dim` wide."""
        return OneHotLabels(self.num_classes, dim) if self.label == "one_hot" else ScalarLabels(dim)

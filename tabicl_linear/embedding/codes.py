"""How values and labels are coded, in the same way for every embedding."""

from typing import NamedTuple

from tabicl_linear.embedding.labels import LabelCode, Labels, OneHotLabels, ScalarLabels
from tabicl_linear.embedding.values import FEATURES, ValueCode


class Codes(NamedTuple):
    """How a value and a label are represented.

    Attributes:
        value: `linear` for the value itself; `fourier` for the value and its Fourier features.
        label: `scalar` for the class index; `one_hot` for a learned vector of each class, and one
            of an unknown label.
        num_classes: Maximum number of classes of a table.
    """

    value: ValueCode
    label: LabelCode
    num_classes: int

    @property
    def features_per_value(self) -> int:
        """Number of features of one value."""
        return FEATURES[self.value]

    def make_labels(self, dim: int) -> Labels:
        """The module that maps labels to vectors of width `dim`."""
        return OneHotLabels(self.num_classes, dim) if self.label == "one_hot" else ScalarLabels(dim)

"""Fits and predicts with an installed package; run by the Python that it is installed for."""

from importlib.metadata import version

from sklearn.datasets import load_iris

import tabicl_linear
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.backends.cpp.loader import unavailable

x, y = load_iris(return_X_y=True)
classifier = TabICLLinearClassifier(n_estimators=1).fit(x[::2], y[::2])
print("from", tabicl_linear.__file__)
print("version", version("tabicl-linear"))
print("kernels", unavailable() or "built")
print("accuracy", classifier.score(x[1::2], y[1::2]))

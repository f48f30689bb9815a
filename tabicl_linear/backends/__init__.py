"""Chooses, tests and applies the implementation that computes a model.

A choice is a value (`kernels/chosen.py`), which applies inside `with using(choice):`.
"""

from tabicl_linear.kernels.chosen import Choice, using

__all__ = ["Choice", "using"]

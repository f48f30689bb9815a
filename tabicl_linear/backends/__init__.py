"""Which implementation computes a model: chosen, probed and applied only here.

A choice is a value (`kernels/chosen.py`): `with using(choice):` computes by it whatever is inside.
"""

from tabicl_linear.kernels.chosen import Choice, using

__all__ = ["Choice", "using"]

"""Which implementation computes a model: chosen, probed and put in force here alone.

A choice is a value (`kernels/chosen.py`): `with using(choice):` computes by it whatever is inside.
"""

from tabicl_linear.kernels.chosen import Choice, using

__all__ = ["Choice", "using"]

"""Update rules and token-by-token references: functions of tensors, without parameters or modules.

Written in plain PyTorch. `chosen.py` lets a backend compute some of them in its own way; which one
does, is decided elsewhere (`backends/`).
"""

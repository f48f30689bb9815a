"""Update rules and token-by-token references: functions of tensors, without parameters or modules.

They are written in plain PyTorch. `chosen.py` lets a backend replace some of them; `backends/`
decides which backend is used.
"""

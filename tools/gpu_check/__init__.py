"""`make gpu-check`: whether everything runs on this CUDA machine, and how fast.

Runs from a bare checkout; this project need not be installed. Any Python with torch and jaxtyping
(which brings numpy) can check the kernels. Training, prior and long contexts also need lightning,
jsonargparse and scipy. Every part imports only what it uses, so that a missing package affects only
the rows that need it.
"""

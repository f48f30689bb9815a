"""`make gpu-check`: whether everything runs on this CUDA machine, and how fast.

Runs from a bare checkout; this project need not be installed. The kernels are checked by any Python
that has torch and jaxtyping (which brings numpy). Training, prior and long contexts also need
lightning, jsonargparse and scipy. Every part imports what it uses itself, so that a missing package
costs the rows that need it and no others.
"""

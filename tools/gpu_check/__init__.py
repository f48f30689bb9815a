"""`make gpu-check`: whether everything runs on this CUDA machine, and how fast.

Runs from a bare checkout with any Python that has torch; nothing need be installed. Every part
imports what it uses itself, so that a missing package costs the rows that need it and no others.
"""

"""The C++ library for the CPU: its sources, its loader and its functions."""

"""The C++ library for the CPU: its sources, how it is loaded, and what it computes."""

"""Builds the C++ kernels where there is a C++ compiler; the rest is in pyproject.toml."""

import sys

from setuptools import Extension, setup

# Apple's compiler has no OpenMP: there the kernels run on one thread.
OPENMP = ["-fopenmp"] if sys.platform == "linux" else []
SOURCES = "tabicl_linear/backends/cpp/csrc"

setup(
    ext_modules=[
        Extension(
            "tabicl_linear.backends.cpp._library",
            sources=[
                f"{SOURCES}/{name}.cpp"
                for name in ("scan_forward", "scan_backward", "tokenwise", "cells")
            ],
            depends=[f"{SOURCES}/{name}.h" for name in ("numbers", "scan", "share", "vectors")],
            extra_compile_args=["-O2", "-g0", "-fno-gcse", "-std=c++17", "-Wno-psabi", *OPENMP],
            extra_link_args=OPENMP,
            language="c++",
            # The package does without: tabicl_linear.backends.cpp.loader says why it is missing.
            optional=True,
        )
    ]
)

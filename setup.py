"""Builds the compiled kernels where there is a C++ compiler; the rest is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tabicl_linear.kernels._compiled",
            sources=["tabicl_linear/kernels/compiled.cpp"],
            extra_compile_args=["-O2", "-g0", "-fno-gcse", "-std=c++17", "-pthread", "-Wno-psabi"],
            extra_link_args=["-pthread"],
            language="c++",
            # The package does without: tabicl_linear.kernels.compiled says why it is missing.
            optional=True,
        )
    ]
)

"""Builds the C++ kernels where there is a C++ compiler; the rest is in pyproject.toml.

With `TABICL_LINEAR_PURE=1` in the environment it does not try: the wheel then has no machine code
and installs everywhere, and PyTorch computes what the kernels would.
"""

import copy
import os
import platform
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Apple's compiler has no OpenMP: there the kernels run on one thread.
OPENMP = ["-fopenmp"] if sys.platform == "linux" else []
SOURCES = "tabicl_linear/backends/cpp/csrc"
PURE = os.environ.get("TABICL_LINEAR_PURE", "0")
if PURE not in ("0", "1"):
    sys.exit(f"TABICL_LINEAR_PURE={PURE}: give 1 for a wheel without C++ kernels, 0 for one with.")


def kernels(name: str, *arguments: str) -> Extension:
    """A library of all kernels, compiled with further arguments."""
    sources = (
        *("scan_forward", "scan_backward", "additive_forward", "additive_backward"),
        *("tokenwise", "cells", "scores", "trees", "triangular", "logistic", "random", "ranks"),
    )
    headers = (
        *("additive", "numbers", "problem", "products"),
        *("scan", "share", "triangular", "vectors"),
    )
    flags = ["-O2", "-g0", "-fno-gcse", "-std=c++17", "-Wno-psabi", *OPENMP]
    return Extension(
        f"tabicl_linear.backends.cpp.{name}",
        sources=[f"{SOURCES}/{source}.cpp" for source in sources],
        depends=[f"{SOURCES}/{header}.h" for header in headers],
        extra_compile_args=[*flags, *arguments],
        extra_link_args=OPENMP,
        language="c++",
        # The package does without: tabicl_linear.backends.cpp.loader says why it is missing.
        optional=True,
    )


class BuildKernels(build_ext):
    """Compiles each library in a folder of its own, since both are made of the same sources.

    Side by side in one folder they would write the same object files, and a library would hold
    what the other's arguments made: slower functions, or instructions that a processor lacks.
    """

    def build_extension(self, ext: Extension) -> None:
        """Compile and link one library."""
        own = copy.copy(self)  # several run at once
        own.build_temp = os.path.join(self.build_temp, ext.name)
        super(BuildKernels, own).build_extension(ext)


LIBRARIES = [kernels("_library")]
if sys.platform == "linux" and platform.machine() == "x86_64":
    # Vectors of AVX-512, which the loader takes where the processor has it.
    LIBRARIES.append(kernels("_library_wide", "-DTABICL_WIDE", "-march=x86-64-v4"))
setup(
    ext_modules=[] if PURE == "1" else LIBRARIES,
    cmdclass={"build_ext": BuildKernels},
    options={"build_ext": {"parallel": len(LIBRARIES)}},  # side by side
)

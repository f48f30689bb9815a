"""Wheels of a folder, unpacked where Python can import them.

Unpacked rather than imported from the archive: Triton compiles kernels from their source files, and
shared libraries cannot be loaded from an archive.
"""

import platform
import sys
import zipfile
from pathlib import Path


def unpack(folder: Path, target: Path) -> list[str]:
    """Unpack the wheels of `folder` that fit this Python into `target`; their file names."""
    fitting = [path for path in sorted(folder.glob("*.whl")) if fits(path.name)]
    for path in fitting:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                written = Path(archive.extract(member, target))
                mode = member.external_attr >> 16
                if mode and not member.is_dir():
                    written.chmod(mode & 0o777 | 0o600)  # included compilers must stay executable
    return [path.name for path in fitting]


def fits(name: str) -> bool:
    """Whether a wheel is for this Python and machine, by the tags in its name."""
    *_, pythons, abis, platforms = name.removesuffix(".whl").split("-")
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    pure = "py3" in pythons.split(".")
    python_fits = pure or version in pythons.split(".") or "abi3" in abis.split(".")
    return python_fits and (platforms == "any" or platform.machine() in platforms)

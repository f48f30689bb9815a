"""Cut a training checkpoint into parts that travel, and join them again.

    python -m experiments.pretrain_default.travel split runs/default/version_0/last.ckpt parts/
    python -m experiments.pretrain_default.travel merge parts/ runs/default/version_0/last.ckpt

No part is larger than 14 MB and all together have at most 60 MB. A checkpoint that fits is kept as
it is, bit for bit; a larger one is packed (`packing.py`). The manifest holds checksums of all parts
and of the whole; a merge that does not agree with them writes nothing.
"""

import argparse
import hashlib
import io
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import torch

from experiments.pretrain_default import packing
from tabicl_linear.callbacks.provenance import CONFIG
from tabicl_linear.errors import CheckpointError
from tabicl_linear.files import written_whole

PART_BYTES = 14_000_000
TOTAL_BYTES = 60_000_000
MANIFEST = "manifest.json"
COMPANIONS = (CONFIG, "../budget.json", "../legs.csv", "../legs.md")
"""Small files that travel inside the manifest, by their paths from the checkpoint's folder."""


def split(
    checkpoint: Path, folder: Path, *, part: int = PART_BYTES, total: int = TOTAL_BYTES
) -> int:
    """Write the parts of a checkpoint and their manifest; return the bytes of all parts.

    Args:
        checkpoint: A last.ckpt; config, budget and log of the run travel too.
        folder: Must be empty or not exist yet.
        part: Most bytes of a part.
        total: Most bytes of all parts.

    Raises:
        CheckpointError: No checkpoint, a folder in use, or too many bytes even when packed.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty; name a new folder for the parts.")
    content = _load(checkpoint.read_bytes() if checkpoint.is_file() else b"", checkpoint)
    whole, form = zlib.compress(checkpoint.read_bytes()), "exact"
    if len(whole) > total:
        whole, form = zlib.compress(_bytes(packing.pack(content))), "packed"
    if len(whole) > total:
        raise CheckpointError(
            f"{checkpoint} takes {len(whole):,} bytes packed, more than {total:,}; raise the limit "
            "with --total."
        )
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, start in enumerate(range(0, len(whole), part)):
        piece, name = whole[start : start + part], f"part_{number:02d}.bin"
        (folder / name).write_bytes(piece)
        parts.append({"name": name, "bytes": len(piece), "sha256": _sha256(piece)})
    texts = {name: checkpoint.parent / name for name in COMPANIONS}
    manifest = {
        "form": form,
        "steps": content["global_step"],
        "sha256": _sha256(whole),
        "parts": parts,
        "texts": {name: path.read_text() for name, path in texts.items() if path.is_file()},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return len(whole)


def merge(folder: Path, checkpoint: Path) -> None:
    """Write the checkpoint that was cut into parts, and the files that travelled with it.

    Raises:
        CheckpointError: A missing or changed part, or a checkpoint that is there already.
    """
    if checkpoint.exists():
        raise CheckpointError(f"{checkpoint} exists; move it away, or name another file.")
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        whole = b"".join(_checked(folder, entry) for entry in manifest["parts"])
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"The parts in {folder} cannot be read: {error}.") from error
    if _sha256(whole) != manifest["sha256"]:
        raise CheckpointError(f"The parts in {folder} do not make the whole; copy them again.")
    content = zlib.decompress(whole)
    if manifest["form"] == "packed":
        content = _bytes(packing.unpack(_load(content, folder)))
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    for name in manifest["texts"].keys() & set(COMPANIONS):
        (checkpoint.parent / name).write_text(manifest["texts"][name])
    with written_whole(checkpoint) as partial:
        partial.write_bytes(content)


def _checked(folder: Path, entry: dict[str, Any]) -> bytes:
    piece = (folder / entry["name"]).read_bytes()
    if _sha256(piece) != entry["sha256"]:
        raise CheckpointError(f"{folder / entry['name']} has changed; copy it again.")
    return piece


def _load(content: bytes, path: Path) -> dict[str, Any]:
    try:
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        _ = loaded["optimizer_states"], loaded["state_dict"], loaded["global_step"]
    except Exception as error:  # bytes that are no checkpoint make the unpickler raise anything
        raise CheckpointError(f"{path} holds no training checkpoint; give a last.ckpt.") from error
    return loaded


def _bytes(content: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main(argv: list[str] | None = None) -> int:
    """Split or merge; 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    cut = verbs.add_parser("split", help="cut a checkpoint into parts")
    cut.add_argument("checkpoint", type=Path)
    cut.add_argument("folder", type=Path)
    cut.add_argument("--part", type=int, default=PART_BYTES, help="most bytes of a part")
    cut.add_argument("--total", type=int, default=TOTAL_BYTES, help="most bytes of all parts")
    join = verbs.add_parser("merge", help="join the parts")
    join.add_argument("folder", type=Path)
    join.add_argument("checkpoint", type=Path)
    arguments = parser.parse_args(argv)
    try:
        if arguments.verb == "split":
            size = split(
                arguments.checkpoint, arguments.folder, part=arguments.part, total=arguments.total
            )
            print(f"{size:,} bytes in {arguments.folder}")
        else:
            merge(arguments.folder, arguments.checkpoint)
            print(arguments.checkpoint)
    except (CheckpointError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Take a pretraining from one machine to another through the repository.

    python -m experiments.pretrain_default.travel pack runs/default
    python -m experiments.pretrain_default.travel unpack runs/default

`pack` writes the trunk's newest checkpoint, with its config and the log of legs, as parts of at
most 14 MB into `experiments/pretrain_default/state/` (or `--state`), replacing existing parts;
commit the folder. `unpack` makes a run from them, which the next leg continues. Weights are rounded
to 24 bits and the optimiser's state to 8 (`packing.py`); `--exact` keeps every bit, if that fits.
The manifest has checksums of all parts and of the whole; parts that do not match are refused, and
nothing is written.
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
from experiments.pretrain_default.conclude import BUDGET
from experiments.pretrain_default.legs import LOG
from experiments.pretrain_default.training import CHECKPOINT, newest_checkpoint
from tabicl_linear.callbacks.provenance import CONFIG
from tabicl_linear.errors import CheckpointError
from tabicl_linear.files import written_whole

STATE = Path(__file__).parent / "state"
PART_BYTES = 14_000_000
TOTAL_BYTES = 15_000_000
MANIFEST = "manifest.json"
TRUNK = Path("trunk", "version_0")
COMPANIONS = (str(TRUNK / CONFIG), BUDGET, LOG, "legs.md")
"""Small files that travel inside the manifest, by their paths in a run."""


def pack(
    run: Path,
    folder: Path,
    *,
    exact: bool = False,
    part: int = PART_BYTES,
    total: int = TOTAL_BYTES,
) -> int:
    """Write the parts of a run's trunk and their manifest; return the bytes of all parts.

    The previous content of the folder stays valid until the new manifest is written.

    Args:
        run: Output folder of the legs.
        folder: Receives the parts; those of an earlier leg are replaced.
        exact: Keep every bit.
        part: Maximum bytes of a part.
        total: Maximum bytes of all parts.

    Raises:
        CheckpointError: There is no checkpoint, or it takes too many bytes.
    """
    checkpoint = newest_checkpoint(run / "trunk") or run / TRUNK / CHECKPOINT
    content = _load(checkpoint.read_bytes() if checkpoint.is_file() else b"", checkpoint)
    whole = zlib.compress(checkpoint.read_bytes() if exact else _bytes(packing.pack(content)), 9)
    if len(whole) > total:
        remedy = "leave --exact out" if exact else "raise the limit with --total"
        raise CheckpointError(
            f"{checkpoint} takes {len(whole):,} bytes, more than {total:,}; {remedy}."
        )
    folder.mkdir(parents=True, exist_ok=True)
    checksum = _sha256(whole)
    parts = []
    for number, start in enumerate(range(0, len(whole), part)):
        piece, name = whole[start : start + part], f"{checksum[:8]}_{number:02d}.bin"
        (folder / name).write_bytes(piece)
        parts.append({"name": name, "bytes": len(piece), "sha256": _sha256(piece)})
    texts = {name: run / name for name in COMPANIONS}
    texts[COMPANIONS[0]] = checkpoint.parent / CONFIG
    manifest = {
        "form": "exact" if exact else "packed",
        "steps": content["global_step"],
        "sha256": checksum,
        "parts": parts,
        "texts": {name: path.read_text() for name, path in texts.items() if path.is_file()},
    }
    with written_whole(folder / MANIFEST) as partial:
        partial.write_text(json.dumps(manifest, indent=1) + "\n")
    for path in set(folder.glob("*.bin")) - {folder / entry["name"] for entry in parts}:
        path.unlink()
    return len(whole)


def unpack(folder: Path, run: Path) -> Path:
    """Make a run from the parts in a folder; return the trunk's checkpoint.

    Raises:
        CheckpointError: A part is missing or changed, or a trunk already exists.
    """
    if newest_checkpoint(run / "trunk") is not None:
        raise CheckpointError(f"{run / 'trunk'} exists; move it away, or name another folder.")
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
    checkpoint = run / TRUNK / CHECKPOINT
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    for name in manifest["texts"].keys() & set(COMPANIONS):
        (run / name).write_text(manifest["texts"][name])
    with written_whole(checkpoint) as partial:
        partial.write_bytes(content)
    return checkpoint


def _checked(folder: Path, entry: dict[str, Any]) -> bytes:
    piece = (folder / entry["name"]).read_bytes()
    if _sha256(piece) != entry["sha256"]:
        raise CheckpointError(f"{folder / entry['name']} has changed; copy it again.")
    return piece


def _load(content: bytes, path: Path) -> dict[str, Any]:
    try:
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        _ = loaded["optimizer_states"], loaded["state_dict"], loaded["global_step"]
    except Exception as error:  # the unpickler may raise anything on files that are not checkpoints
        raise CheckpointError(f"{path} holds no training checkpoint; give a last.ckpt.") from error
    return loaded


def _bytes(content: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main(argv: list[str] | None = None) -> int:
    """Pack or unpack; return 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (("pack", "write the parts"), ("unpack", "make a run of the parts")):
        command = verbs.add_parser(verb, help=text)
        command.add_argument("run", type=Path, help="output folder of the legs")
        command.add_argument("--state", type=Path, default=STATE, help="folder of the parts")
        if verb == "pack":
            command.add_argument("--exact", action="store_true", help="keep every bit")
            command.add_argument("--part", type=int, default=PART_BYTES, help="bytes of a part")
            command.add_argument("--total", type=int, default=TOTAL_BYTES, help="bytes of all")
    arguments = parser.parse_args(argv)
    try:
        if arguments.verb == "pack":
            size = pack(
                arguments.run,
                arguments.state,
                exact=arguments.exact,
                part=arguments.part,
                total=arguments.total,
            )
            print(f"{size:,} bytes in {arguments.state}")
        else:
            print(unpack(arguments.state, arguments.run))
    except (CheckpointError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`tabicl-linear export CKPT OUT.safetensors`: the model of a checkpoint as one file."""

from pathlib import Path

from tabicl_linear.cli.checkpoints import add_trust
from tabicl_linear.cli.outputs import say
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.signals import ended_at_once


def main(argv: list[str]) -> int:
    """Write the model of a checkpoint as one file; return the exit code."""
    parser = OneLineArgumentParser(
        prog="tabicl-linear export",
        description="Write the model of a checkpoint as one file that load_model, the classifier "
        "and `predict` read.",
    )
    parser.add_argument("checkpoint", metavar="CKPT", type=Path, help="a last.ckpt of `fit`")
    parser.add_argument("output", metavar="OUT", type=Path, help="the file, *.safetensors")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        help="change the recipe, for example model.architecture.ridge_inputs.num_trees=24",
    )
    add_trust(parser, "hand on classes")
    arguments = parser.parse_args(argv)
    with ended_at_once():
        from tabicl_linear.checkpoint import export  # torch takes seconds to import

    checkpoint, output = arguments.checkpoint, arguments.output
    export(checkpoint, output, arguments.override, trust_code=arguments.trust_code)
    say(f"Wrote {output}")
    return 0

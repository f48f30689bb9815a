"""Help of `tabicl-linear fit`, `validate` and `test`, shown without loading torch.

The keys are arguments of classes, so listing all of them, in hundreds of lines, imports these
classes, which takes seconds. `--help` shows what most people need and says where the rest is.
"""

import sys
from functools import partial

from tabicl_linear.signals import ended_at_once

HELP = ("-h", "--help")
ALL = "--help-all"

FIT = """\
usage: tabicl-linear fit --config FILE [--config FILE ...] [--KEY VALUE ...]
       tabicl-linear fit --ckpt_path CHECKPOINT [--KEY VALUE ...]

Pretrain a model on synthetic tables, or resume a run. Each file and key overrides those before it,
so give the files first. docs/training.md explains all of it.

files of configs/, beside models of the paper such as deltanet.yaml:
  quick.yaml                     a small model, minutes on a CPU
  smoke.yaml                     laid over another: seconds, to see that it runs
  mixer/ readout/ strategy/      what a model is made of
  prior/ length/ mitigation/ learner/ inputs/ axis/ architecture/   how it is trained

keys that most runs need:
  --ckpt_path CHECKPOINT         goes on bit-identically; other keys change the run from there on
  --seed_everything SEED         seed of weights and data
  --trainer.max_steps STEPS      optimiser steps; the schedule of learning rates follows
  --trainer.default_root_dir DIR where the run makes its folder version_N (runs)
  --trainer.accelerator, --trainer.devices, --trainer.num_nodes, --trainer.precision
  --trainer.val_check_interval STEPS       steps between validations
  --checkpoint.every_n_steps STEPS         steps between checkpoints
  --data.shapes.batch_size, --data.shapes.num_rows, --data.shapes.max_features     size of tasks
  --model.architecture.dim, --model.architecture.depth                             size of network
  --model.optimizer.init_args.lr RATE

all keys, their types and defaults:
  tabicl-linear fit --help-all
  tabicl-linear fit --model.mixer.help=CLASS_PATH            keys of a class
  tabicl-linear fit --config FILE ... --print_config         the whole config, to be saved as a file
"""

SCORE = """\
usage: tabicl-linear {verb} --ckpt_path CHECKPOINT [--KEY VALUE ...]

{what}
The config is that of the checkpoint; keys change it, such as --data.shapes.num_rows ROWS or
--trainer.accelerator cpu. It prints loss, accuracy and ROC-AUC.

all keys, their types and defaults:
  tabicl-linear {verb} --help-all
  tabicl-linear {verb} --print_config
"""
PAGES = {
    "fit": FIT,
    "validate": SCORE.format(
        verb="validate", what="Score a checkpoint on the synthetic validation set of its training."
    ),
    "test": SCORE.format(
        verb="test", what="Score a checkpoint on a second synthetic set, never used in training."
    ),
}


def run(verb: str, options: list[str]) -> int:
    """Show the help, or train, resume or score; return the exit code."""
    if options and set(options) <= set(HELP):
        sys.stdout.write(PAGES[verb])
        return 0
    with ended_at_once():
        from tabicl_linear.cli import training  # Lightning takes seconds to import

    return training.run(verb, ["--help" if option == ALL else option for option in options])


fit, validate, test = (partial(run, verb) for verb in PAGES)

"""`tabicl-linear inspect`: what the states and write rates of one or two checkpoints do.

Writes a folder with an HTML page, one Parquet file per analysis, and the summary that it prints.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tabicl_linear.analysis.inspection import Inspection, Plan, inspect_model, plan_lengths
from tabicl_linear.analysis.page import page
from tabicl_linear.analysis.probe_tasks import NUM_QUERIES, SEED, Probe, draw_probe, queried
from tabicl_linear.analysis.states import check_lengths
from tabicl_linear.analysis.summary import summarise
from tabicl_linear.checkpoint import load_model
from tabicl_linear.cli.checkpoints import named
from tabicl_linear.cli.outputs import say, warnings_as_lines, writing_to
from tabicl_linear.errors import DataError, counted
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.rows.labels import checked_labels
from tabicl_linear.estimator.rows.table_file import TableFile
from tabicl_linear.files import folder_written_whole
from tabicl_linear.model import InContextModel
from tabicl_linear.parquet import write_table
from tabicl_linear.priors import TabPFNv1Prior
from tabicl_linear.shipped import checkpoint_path

_say = partial(say, verb="inspect")
PAGE, SUMMARY = "inspect.html", "summary.txt"
QUERY_SHARE = 0.2


def run(options: argparse.Namespace) -> int:
    """Analyse checkpoints with options that `inspect_options.main` has checked; return 0."""
    paths = [checkpoint_path(name) for name in options.checkpoints]
    models = [load_model(path, trust_code=options.trust_code).eval() for path in paths]
    with warnings_as_lines("inspect"):
        plan = _plan(models, options)
    inspections = [
        inspect_model(name, model, plan, only=options.only or (), say=_say)
        for name, model in zip(named(paths), models, strict=True)
    ]
    lines = summarise(inspections, plan)
    with writing_to(options.output):
        _write(options.output, inspections, lines)
    sys.stdout.write("\n".join([*lines, ""]))
    _say(f"wrote {options.output / PAGE}")
    return 0


def _plan(models: Sequence[InContextModel], options: argparse.Namespace) -> Plan:
    """The tasks and context lengths to analyse, from a table or from the synthetic prior."""
    probe = None
    if options.table is not None:
        table, labels = TableFile(options.table).labelled(options.target)
        probe = table_probe(table, labels, models, num_tasks=options.tasks)
    most = None if probe is None else probe.num_context
    lengths, reference = plan_lengths(models, most)
    if options.lengths:
        check_lengths(options.lengths, most or sys.maxsize)
        lengths = options.lengths
        reference = max([n for n in lengths if n <= reference], default=lengths[0])
    if probe is None:
        probe = draw_probe(
            TabPFNv1Prior(),
            lengths,
            trained=reference,
            num_tasks=options.tasks,
            feature_range=(1, min(model.max_columns for model in models)),
            max_classes=min(model.architecture.num_classes for model in models),
        )
    return Plan(probe, lengths, reference)


def table_probe(
    table: pd.DataFrame, labels: pd.Series, models: Sequence[InContextModel], *, num_tasks: int
) -> Probe:
    """Probe tasks of a real table: each has the rows in another order, and holds some as queries.

    A fifth of the rows are queries, `NUM_QUERIES` at most. Columns beyond the number that all
    models take are left out.

    Raises:
        DataError: The table is too short, or its labels or their number of classes cannot be used.
    """
    num_classes = labels.nunique()
    most = min(model.architecture.num_classes for model in models)
    if not 2 <= num_classes <= most:
        raise DataError(
            f"--target {labels.name!r} has {counted(num_classes, 'class', 'classes')}; give a "
            f"column of 2 to {most}."
        )
    classes, codes = np.unique(checked_labels(labels), return_inverse=True)
    preprocessor = TablePreprocessor().fit(table)
    columns = slice(None, min(model.max_columns for model in models))
    matrix = torch.from_numpy(preprocessor.transform(table))[:, columns]
    num_queries = min(NUM_QUERIES, int(len(codes) * QUERY_SHARE))
    if num_queries < 1 or len(codes) - num_queries < len(classes):
        raise DataError(
            f"The table has {counted(len(codes), 'row')} for {len(classes)} classes: too few for "
            "a context and queries; give a longer one."
        )
    generator, y = torch.Generator().manual_seed(SEED), torch.from_numpy(codes)
    orders = [torch.randperm(len(codes), generator=generator) for _ in range(num_tasks)]
    rows = torch.stack([order[queried(y[order], num_queries, first=0)] for order in orders])
    categorical = torch.from_numpy(preprocessor.categorical)[columns].expand(num_tasks, -1)
    return Probe(matrix[rows], y[rows], categorical, num_queries, None)


def _write(output: Path, inspections: Sequence[Inspection], lines: Sequence[str]) -> None:
    output.absolute().parent.mkdir(parents=True, exist_ok=True)
    with folder_written_whole(output) as folder:
        tables = dict[str, list[pd.DataFrame]]()
        for one in inspections:
            for name, table in one.tables.items():
                tables.setdefault(name, []).append(table.assign(checkpoint=one.name))
        for name, parts in tables.items():
            write_table(folder / f"{name}.parquet", pd.concat(parts, ignore_index=True))
        title = "Inspection of " + " and ".join(one.name for one in inspections)
        (folder / PAGE).write_text(page(inspections, lines, title))
        (folder / SUMMARY).write_text("\n".join([*lines, ""]))

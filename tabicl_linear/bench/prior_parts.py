"""Where the time of a drawn dataset goes, part by part."""

import cProfile
import pstats
import time
from collections.abc import Callable

import torch

from tabicl_linear.bench.report import Cell, Table, number
from tabicl_linear.priors import TabPFNv1Prior, TaskShape, draws
from tabicl_linear.priors.tabpfn_v1 import causes, columns, mlp
from tabicl_linear.priors.tabpfn_v1 import prior as tabpfn_v1

CALLS = 100
"""Batches that are profiled."""

PARTS: dict[str, tuple[Callable[..., object], ...]] = {
    "hyper-parameters and nodes": (
        tabpfn_v1.draw_network_parameters,
        tabpfn_v1.draw_target_parameters,
        tabpfn_v1.draw_column_parameters,
        mlp.draw_nodes,
    ),
    "causes": (causes.draw_causes,),
    "weights, biases, noise levels": (mlp._draw_network,),
    "networks with an activation": (mlp._propagate,),
    "networks without one": (mlp._collapse,),
    "classes": (
        tabpfn_v1._assign_classes,
        tabpfn_v1.classes.count_classes,
        tabpfn_v1.classes.reindex_classes,
        tabpfn_v1.classes.rotate_classes,
    ),
    "which draws are kept": (tabpfn_v1.is_compatible,),
    "columns: categories": (tabpfn_v1.categorise_,),
    "columns: ranks": (columns.to_ranks,),
    "columns: outliers": (columns.pull_in_outliers,),
    "every class in the context": (tabpfn_v1.classes.cover_classes,),
}


def parts_table(shape: TaskShape, device: torch.device, calls: int) -> Table:
    """Profile the prior with a network each; milliseconds of the process a dataset."""
    prior, generator = TabPFNv1Prior(), torch.Generator(device).manual_seed(0)
    prior.sample_tasks(shape, generator)
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    for _ in range(calls):
        prior.sample_tasks(shape, generator)
    profile.disable()
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]

    def spent(functions: tuple[Callable[..., object], ...]) -> float:
        codes = [f.__code__ for f in functions]
        keys = [(c.co_filename, c.co_firstlineno, c.co_name) for c in codes]
        seconds = sum(stats[key][3] for key in keys if key in stats)
        return float(1000 * seconds / (calls * shape.batch_size))

    whole = spent((TabPFNv1Prior.sample_tasks,))
    times = {name: spent(functions) for name, functions in PARTS.items()}
    times["the rest: copies, z-scores, seeding"] = whole - sum(times.values())
    times["*all*"] = whole
    times["*in all of it, normal numbers*"] = spent((draws.normal,))
    rows: list[list[Cell]] = [[n, number(ms), f"{ms / whole:.0%}"] for n, ms in times.items()]
    return Table(
        f"Where the time goes: sharing=dataset, {shape.num_features} columns",
        ("", "ms a dataset", "share"),
        rows,
        ("Python's profiler makes every call longer, small ones most: shares, not speeds.",),
    )

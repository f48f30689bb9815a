"""Runs that keep every step, and checkpoints that should be the same."""

import torch

UNLOGGED = ("--trainer.logger", "false")
KEEP = ("--checkpoint.keep_every_n_steps", 1, "--trainer.max_steps", 6, *UNLOGGED)


def assert_same(first, second):
    assert first["state_dict"].keys() == second["state_dict"].keys()
    for name, value in first["state_dict"].items():
        assert torch.equal(value, second["state_dict"][name]), name
    states = (c["optimizer_states"][0]["state"] for c in (first, second))
    for one, two in zip(*(s.values() for s in states), strict=True):
        for name, value in one.items():
            assert torch.equal(value, two[name]), name
    for key in ("global_step", "PriorDataModule", "lr_schedulers", "provenance"):
        assert first[key] == second[key], key
    groups = (c["optimizer_states"][0]["param_groups"] for c in (first, second))
    assert next(groups) == next(groups)
    progress = (c["loops"]["fit_loop"]["epoch_loop.batch_progress"] for c in (first, second))
    assert next(progress) == next(progress)

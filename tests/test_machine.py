"""What a report says of the machine."""

import json

import torch

from tabicl_linear import machine


def test_the_description_is_plain_data_and_names_everything():
    described = machine.describe(torch.device("cpu"))
    assert json.loads(json.dumps(described)) == described
    line = machine.sentence(described)
    for part in (described["cpu"], described["torch"], described["date"], "cores", "load"):
        assert str(part) in line


def test_no_commit_outside_the_checkout_of_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.tabicl_linear, "__file__", str(tmp_path / "__init__.py"))
    assert machine.describe(torch.device("cpu"))["git_commit"] is None

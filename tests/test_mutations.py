"""The table of wrong lines fits the package; `python tests/mutations.py` shows what is noticed."""

import ast
from collections import Counter

import pytest
from mutations import ROOT, Mutation, mutations

MUTATIONS = mutations()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.file}-{m.wrong[:30]}")
def test_a_wrong_line_is_code_and_its_tests_are_there(mutation):
    whole = (ROOT / "tabicl_linear" / mutation.file).read_text()
    ast.parse(mutation.applied(whole))
    assert mutation.wrong != mutation.right
    assert mutation.tests
    for test in mutation.tests.split():
        assert (ROOT / "tests" / test.split("::")[0]).is_file()


def test_no_line_is_wrong_twice_in_the_same_way():
    assert max(Counter((m.file, m.right, m.wrong) for m in MUTATIONS).values()) == 1


@pytest.mark.parametrize("text", ["b", "a a"])
def test_a_line_that_has_changed_is_named(text):
    with pytest.raises(ValueError, match=r"x\.py holds 'a' [02] times and should hold it once"):
        Mutation("x.py", "a", "c", "", "").applied(text)

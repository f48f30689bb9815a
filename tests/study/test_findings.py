"""Findings are shown while the verdicts they rest on hold, with the numbers of these."""

import re
from pathlib import Path

import pytest

from experiments.study import claims, findings
from experiments.study.claims import NOT_MEASURED, SEEN, UNDECIDED, Verdict
from experiments.study.contrasts import Estimate
from tabicl_linear.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "results" / "README.md"
CLAIMS = claims.read()


def verdicts(**changed):
    """Every claim as the findings have it, with an estimate of 0.0625, but for those changed."""
    wanted = {}
    for finding in findings.read([claim.name for claim in CLAIMS]):
        wanted |= finding.rests_on
    wanted |= changed
    estimate = Estimate(0.0625, 0.01, 0.0, 100, 1)
    return [Verdict(x, wanted.get(x.name, UNDECIDED), estimate, 0.001, 1) for x in CLAIMS]


def test_numbers_of_the_claims_stand_in_the_sentence():
    text = findings.in_short(verdicts())
    assert text.startswith("In short:\n\n- Causal Delta degrades beyond four times")
    assert "from 4 to 64 times it loses 0.062 ROC-AUC" in text
    assert not re.search(r"[{}]", text)


@pytest.mark.parametrize("verdict", [UNDECIDED, NOT_MEASURED])
def test_a_finding_goes_with_any_verdict_that_it_rests_on(verdict):
    whole = findings.in_short(verdicts()).splitlines()
    without = findings.in_short(verdicts(delta_holds_to_4x=verdict)).splitlines()
    assert without == [line for line in whole if not line.startswith("- Up to four times")]


def test_a_finding_is_marked_where_a_verdict_hangs_on_what_all_arms_vary():
    whole = verdicts()
    hanging = [
        x._replace(by_own_arms=UNDECIDED) if x.claim.name == "ridge_holds" else x for x in whole
    ]
    marked = [
        line
        for line in findings.in_short(hanging).splitlines()
        if line.endswith("\N{DOUBLE DAGGER}")
    ]
    assert len(marked) == 1
    assert "layer-local ridge" in marked[0]
    assert "\N{DOUBLE DAGGER}" not in findings.in_short(whole)


def test_nothing_is_said_where_nothing_holds():
    nothing = [x._replace(verdict=NOT_MEASURED, estimate=None) for x in verdicts()]
    assert findings.in_short(nothing) == ""


@pytest.mark.parametrize("rests_on", ["{delta_shrinks: seen}", "{delta_degrades: certain}"])
def test_what_a_finding_rests_on_exists(tmp_path, rests_on):
    path = tmp_path / "findings.yaml"
    path.write_text(f"- says: It rains.\n  rests_on: {rests_on}\n")
    with pytest.raises(ConfigError, match="a finding rests on delta_"):
        findings.read(["delta_degrades"], path)


def test_all_findings_stand_on_the_page():
    """One that the kept measurements do not bear is taken out of findings.yaml, or corrected."""
    page = PAGE.read_text()
    for finding in findings.read([claim.name for claim in CLAIMS]):
        assert finding.says.split("{")[0].strip() in page
        assert SEEN in finding.rests_on.values() or "Other than in the paper" in finding.says

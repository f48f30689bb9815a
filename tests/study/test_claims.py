"""Verdicts of claims: made-up effects, Holm's correction by hand, and the table itself."""

import pytest
from study import made_up

from experiments.study import claims
from experiments.study.contrasts import Contrast, Estimate
from experiments.study.measurements import load
from experiments.study.readings import Tables
from experiments.study.verdict_table import verdict_table

HEADER = "id,item,family,section,headline,claim,published,metric,contrast,rule,margin\n"


def claim(name, contrast, rule="above", margin=0.01, family="one"):
    parsed = Contrast.parse(contrast)
    about = ("item", family, "1", True, f"Claim {name}.", "", "roc_auc")
    return claims.Claim(name, *about, parsed, rule, margin)


def estimated(value, error, datasets=100):
    return Estimate(value, error, float("nan"), datasets, 1)


@pytest.mark.parametrize(
    ("rule", "value", "error", "verdict"),
    [
        ("above", 0.05, 0.01, claims.SEEN),
        ("above", -0.05, 0.01, claims.OPPOSITE),
        ("above", 0.001, 0.002, claims.NOT_SEEN),
        ("above", 0.001, 0.02, claims.UNDECIDED),
        ("above", 0.009, 0.005, claims.UNDECIDED),  # the interval reaches beyond the margin
        ("not_below", 0.001, 0.002, claims.SEEN),
        ("not_below", -0.05, 0.01, claims.OPPOSITE),
        ("not_below", 0.001, 0.02, claims.UNDECIDED),
        ("not_below", -0.009, 0.005, claims.UNDECIDED),
    ],
)
def test_the_rules(rule, value, error, verdict):
    asked, result = claim("a", "a@1", rule), estimated(value, error)
    assert claims.decide(asked, result, result.p(asked.threshold)) == verdict


def test_holm_counts_all_claims_of_the_family_measured_or_not(tmp_path):
    made_up.lengths(made_up.unit(tmp_path, "a"), made_up.flat(0.70, noise=0.01, seed=1))
    made_up.lengths(made_up.unit(tmp_path, "b"), made_up.flat(0.68, noise=0.01, seed=2))
    made_up.lengths(made_up.unit(tmp_path, "c"), made_up.flat(0.60, noise=0.01, seed=3))
    asked = [
        claim("small", "a@1 - b@1"),
        claim("large", "a@1 - c@1"),
        claim("absent", "a@1 - d@1"),
        claim("elsewhere", "a@1 - b@1", family="two"),
    ]
    small, large, absent, elsewhere = claims.verdicts(
        asked, Tables(load("small", tmp_path)), made_up.TRAINED
    )
    p_small, p_large = small.estimate.p(), large.estimate.p()
    assert p_large < p_small < 0.05
    # Three claims: the smallest p times 3, the next times 2.
    assert large.adjusted == pytest.approx(3 * p_large)
    assert small.adjusted == pytest.approx(2 * p_small)
    assert elsewhere.adjusted == pytest.approx(p_small)
    assert (absent.verdict, absent.missing) == (claims.NOT_MEASURED, "d (lengths)")
    assert absent.estimate is None
    assert large.verdict == claims.SEEN


def test_verdicts_of_made_up_effects(tmp_path):
    made_up.lengths(made_up.unit(tmp_path, "a"), made_up.falling(0.7, 0.02))
    made_up.lengths(made_up.unit(tmp_path, "b"), made_up.flat(0.7, noise=0.002, seed=1))
    asked = [
        claim("falls", "a@4 - a@64"),
        claim("holds", "b@64 - b@4", "not_below"),
        claim("falls_too", "b@4 - b@64"),
        claim("holds_too", "a@64 - a@4", "not_below"),
        claim("rises", "a@64 - a@4"),
    ]
    result = claims.verdicts(asked, Tables(load("small", tmp_path)), made_up.TRAINED)
    assert [x.verdict for x in result] == [
        claims.SEEN,
        claims.SEEN,
        claims.NOT_SEEN,
        claims.OPPOSITE,
        claims.OPPOSITE,
    ]
    assert result[0].estimate.value == pytest.approx(0.02 * 4, abs=0.02)


def test_a_verdict_that_hangs_on_how_much_other_arms_vary_is_known(tmp_path):
    for seed, level in ((0, 0.5), (1, 0.9)):
        made_up.lengths(made_up.unit(tmp_path, "wild", seed), made_up.flat(level, noise=0.002))
        ahead = made_up.flat(0.72, noise=0.002, seed=seed)
        made_up.lengths(made_up.unit(tmp_path, "ahead", seed), ahead)
        behind = made_up.flat(0.7, noise=0.002, seed=2 + seed)
        made_up.lengths(made_up.unit(tmp_path, "behind", seed), behind)
    made_up.lengths(made_up.unit(tmp_path, "once"), made_up.flat(0.7, noise=0.002))
    asked = [
        claim("leads", "ahead@1 - behind@1"),
        claim("far", "ahead@1 - behind@1 + 9", family="two"),
        claim("alone", "once@1", family="three"),
    ]
    leads, far, alone = claims.verdicts(asked, Tables(load("small", tmp_path)), made_up.TRAINED)
    assert (leads.verdict, leads.by_own_arms) == (claims.UNDECIDED, claims.SEEN)
    assert (far.verdict, far.by_own_arms) == (claims.SEEN, claims.SEEN)
    assert alone.by_own_arms == ""
    assert [x.hangs_on_pool for x in (leads, far, alone)] == [True, False, False]
    table = verdict_table([leads, far, alone], [])
    assert table.count("\N{DOUBLE DAGGER}") == 2  # in its row, and above the list
    assert table.endswith("would be:\n\n- Claim leads.: seen")


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("x,ridge,f,1,yes,c,p,roc_auc,gla@1,above,0.1\n" * 2, "x stands twice"),
        ("x,ridge,f,1,yes,c,p,roc_auc,gla@1,same,0.1\n", "rule same"),
        ("x,ridge,f,1,yes,c,p,roc_auc,gla@1,above,-0.1\n", "margin -0.1"),
        ("x,ridge,f,1,yes,c,p,roc_auc,gla@1,above,wide\n", "margin nan"),
        ("x,ridge,f,1,yes,c,p,roc_auc,gla,above,0.1\n", "cannot read"),
        ("x,ridges,f,1,yes,c,p,roc_auc,gla@1,above,0.1\n", "x is of the item ridges, which"),
        ("x,ridge,f,1,yes,c,p,roc_auc,gla@1 - mine@1,above,0.1\n", "x reads the arm mine, which"),
        ("x,ridge,f,1,yes,c,p,rocauc,gla@1,above,0.1\n", "one of roc_auc, value"),
    ],
)
def test_a_faulty_table_is_refused(tmp_path, rows, fault):
    (tmp_path / "claims.csv").write_text(HEADER + rows)
    with pytest.raises(claims.ConfigError, match=fault):
        claims.read(tmp_path / "claims.csv")


def test_what_cannot_fall_cannot_hold(tmp_path):
    made_up.lengths(made_up.unit(tmp_path, "low"), made_up.flat(0.56, noise=0.002))
    made_up.lengths(made_up.unit(tmp_path, "high"), made_up.flat(0.7, noise=0.002, seed=1))
    asked = [
        claim("low_holds", "low@64 - low@4", "not_below"),
        claim("high_holds", "high@64 - high@4", "not_below"),
        claim("low_rises", "low@64 - low@4"),
        claim("low_is_near", "high@4 - low@4", "not_below"),
    ]
    low, high, rises, two = claims.verdicts(asked, Tables(load("small", tmp_path)), made_up.TRAINED)
    assert (low.verdict, low.unguarded) == (claims.UNDECIDED, claims.SEEN)
    assert (high.verdict, high.unguarded) == (claims.SEEN, "")
    assert rises.unguarded == two.unguarded == ""


def test_the_table_is_read_whole():
    table = claims.read()
    assert 40 <= len(table) <= 80
    assert 18 <= sum(one.headline for one in table) <= 27

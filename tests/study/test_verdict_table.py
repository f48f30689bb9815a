"""The table of verdicts: what each cell says, and what is left to the list below it."""

import pandas as pd
import pytest
from study import made_up

from experiments.study.claims import Claim, verdicts
from experiments.study.contrasts import Contrast
from experiments.study.items import items
from experiments.study.measurements import load
from experiments.study.parts import Study, write_rates
from experiments.study.readings import Tables
from experiments.study.sections import seeds_of
from experiments.study.verdict_table import how_to_read, near_guessing, verdict_table


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Two arms of one seed, and one of two that guesses and was measured on lengths alone."""
    root = tmp_path_factory.mktemp("measured")
    for arm, level in (("a", 0.75), ("b", 0.70)):
        folder = made_up.unit(root, arm)
        made_up.lengths(folder, made_up.flat(level))
        made_up.looks(folder, {1: level}, {1: level})
        made_up.cost(folder, 10 * level, 0.0)
    for seed in (0, 1):
        made_up.lengths(made_up.unit(root, "guess", seed), made_up.flat(0.52, seed=seed))
    return Tables(load("small", root))


def shown(tables, contrast, rule="above", metric="roc_auc"):
    """The lines of a table of one claim."""
    about = ("item", "family", "1", True, "The claim", "published", metric)
    claim = Claim("name", *about, Contrast.parse(contrast), rule, 0.01)
    judged = verdicts([claim], tables, made_up.TRAINED)
    return verdict_table(judged, [*near_guessing(tables, made_up.TRAINED)]).splitlines()


def row(tables, contrast, rule="above", metric="roc_auc"):
    *_, line = (x for x in shown(tables, contrast, rule, metric) if x.startswith("|"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_cells_say_what_is_needed_and_what_it_was_measured_on(tables):
    claim, verdict, paper, here, needed, _, data, seeds = row(tables, "a@1 - b@1")
    assert (claim, verdict, paper) == ("The claim.", "**seen**", "published (1)")
    assert here.startswith("+0.0")
    assert (needed, data, seeds) == ("> 0", "20 synthetic datasets", "1")
    assert row(tables, "a@64 - a@4", "not_below")[4] == "> -0.01"


def test_verdicts_of_models_near_guessing_are_marked(tables):
    guessing = near_guessing(tables, made_up.TRAINED)
    assert guessing == {"guess": pytest.approx(0.52, abs=0.02)}
    assert row(tables, "a@1 - guess@1")[1] == "**seen †**"
    assert "†" in how_to_read(has_guessing=True)
    assert "†" not in how_to_read(has_guessing=False)


def test_on_real_tables_an_arm_is_near_guessing_by_its_scores_there(tmp_path):
    for arm, level in (("a", 0.75), ("b", 0.55)):
        folder = made_up.unit(tmp_path, arm)
        made_up.lengths(folder, made_up.flat(1.3 - level))
        made_up.real(folder, {"cc18": [level + 0.001 * number for number in range(10)]})
    tables = Tables(load("small", tmp_path))
    assert [*near_guessing(tables, made_up.TRAINED)] == ["a", "b on real tables"]
    assert row(tables, "a@real - b@real")[1] == "**seen (one seed) †**"
    assert "†" in row(tables, "a@1 - b@1")[1]
    assert "†" not in row(tables, "b@1 - b@4")[1]


def test_one_seed_is_said_of_states_too_and_not_of_costs(tables):
    _, verdict, *_, data, seeds = row(tables, "a:cosine@64 - b:cosine@64", metric="value")
    assert (verdict, data, seeds) == ("**seen (one seed)**", "3 probe tasks", "1")
    cost = row(tables, "a:fit_exponent@long - b:fit_exponent@long", metric="value")
    assert (cost[1], cost[6]) == ("**seen**", "3 lengths")


def test_what_would_decide_stands_below_undecided_claims_alone(tables):
    *_, heading, _, line = shown(tables, "a@64 - a@4", "not_below")
    assert heading.startswith("Not decidable here.")
    assert line.startswith("- The claim: seen, with ")
    assert shown(tables, "a@1 - b@1")[-1].startswith("|")


def test_what_is_not_measured_stands_below(tables):
    assert shown(tables, "a@1 - absent@1") == [
        "Not measured yet, and what is missing:",
        "",
        "- The claim (1): absent (lengths)",
    ]


def test_seeds_are_those_of_the_measure(tmp_path):
    for seed in (0, 1):
        folder = made_up.unit(tmp_path, "a", seed)
        made_up.lengths(folder, made_up.flat(0.7))
    made_up.real(folder, {"cc18": [0.7, 0.8]})
    tables = Tables(load("small", tmp_path))
    assert [seeds_of(tables, "a", x).text for x in ("lengths", "real")] == ["2", "1"]


def test_seeds_do_not_count_as_datasets_of_write_rates(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "experiments.study.parts.write_rates_figure", lambda x, **_: drawn.append(x)
    )
    for seed in (0, 1):
        folder = made_up.unit(tmp_path, "deltanet", seed)
        made_up.looks(folder, {1: 0.9}, {1: 0.5})
        study = Study(Tables(load("small", tmp_path)), made_up.TRAINED)
        write_rates(study, items()["write_rates"])
    one, two = (profiles["deltanet"] for profiles in drawn)
    # The second training repeats the first, so that nothing is known better.
    pd.testing.assert_frame_equal(one, two)
    assert (one["high"] > one["low"]).all()

"""The pages of the study: written whole from made-up measurements, with what is missing named."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
from study import made_up

from experiments.study import drawing, pages
from experiments.study.items import items
from experiments.study.measurements import load
from experiments.study.parts import Study, decay_at_evaluation, summary
from experiments.study.readings import Tables
from experiments.study.report import main, write
from experiments.study.sections import of_arms

RATE = {1: 0.9, 2: 0.5, 3: 0.2}
TABLES = {"cc18": [0.8, 0.9, 0.7, 0.6], "tabarena": [0.7, 0.8]}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Ten arms, one of them with two seeds, one that failed."""
    root = tmp_path_factory.mktemp("measured")
    level = {"softmax": 0.75, "linear_noncausal": 0.70, "linear_causal": 0.69, "deltanet": 0.72}
    level |= {"deltanet_decay": 0.72, "deltanet_fs_decay": 0.73, "mamba2": 0.6}
    level |= {f"deltanet_{x}": 0.71 for x in ("int_mt", "int_st", "comb_mt")}
    slope = {"deltanet": 0.03, "linear_causal": 0.01}
    for number, (arm, height) in enumerate(level.items()):
        for seed in (0, 1) if arm == "deltanet" else (0,):
            folder = made_up.unit(root, arm, seed)
            score = made_up.falling(height + 0.001 * seed, slope.get(arm, 0.0), seed=number)
            made_up.lengths(folder, score)
            made_up.looks(folder, RATE, RATE)
            softmax = float(arm == "softmax")
            made_up.cost(folder, 1.0 + softmax, softmax, (1000, 2000, 4000, 8000, 16000))
            shift = 0.01 * number
            made_up.real(folder, {k: [x - shift for x in v] for k, v in TABLES.items()})
            if arm == "deltanet":
                made_up.oracle(folder, lambda rows, n: 0.6 + 0.01 * n, 0.1)
                made_up.decay(folder, score)
                made_up.oracle_real(folder, 0.02)
                made_up.states(folder, lambda rows, n: 0.6 + 0.01 * n, 0.05)
    made_up.unit(root, "ridge", status="failed", reason="the loss is nan")
    return root


def first_of_each_kind(draw):
    """Draw a figure unless one with the same titles is drawn: most of the time goes there."""
    drawn = set()

    def drawn_once(figure):
        titles = tuple((ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes)
        if titles in drawn:
            return "<svg/>"
        drawn.add(titles)
        return draw(figure)

    return drawn_once


@pytest.fixture(scope="module")
def written(measured, tmp_path_factory):
    output = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "svg", first_of_each_kind(drawing.svg))
        assert main(["--measured", str(measured), "--output", str(output)]) == 0
    return output


def test_every_item_has_a_page_and_every_link_leads_somewhere(written):
    pages = sorted(written.rglob("*.md"))
    assert {path.stem for path in pages} == {"README", "claims", "units", *items()}
    for path in pages:
        links = re.findall(r"\]\(([^)]+)\)", path.read_text())
        assert links
        assert all((path.parent / link.partition("#")[0]).is_file() for link in links), path
    shown = {link for path in pages for link in re.findall(r"\(([^)]+\.svg)\)", path.read_text())}
    drawn = {path.name for path in written.rglob("*.svg")}
    assert {link.rpartition("/")[2] for link in shown} == drawn
    assert {"length_gap-lengths.svg", "drift-drift.svg", "scaling-cost.svg"} <= drawn


def test_the_first_page_has_verdicts_first(written):
    page = (written / "README.md").read_text()
    assert page.index("| Claim |") < page.index("![") < page.index("## Pages")
    row = next(x for x in page.splitlines() if x.startswith("| Causal Delta degrades beyond"))
    assert re.search(r"\+0\.\d{4} \[\+0\.\d{4}, \+0\.\d{4}\]", row)
    assert "| **seen** |" in row
    assert row.endswith("| 20 synthetic datasets | 2 |")
    assert page.index("How to read it") < page.index("| Claim |") < page.index("Not measured yet")
    absent = next(x for x in page.splitlines() if x.startswith("- With bidirectionality"))
    assert "deltanet_bidirectional (lengths)" in absent
    assert "Shape of the curves here" in page


def test_units_are_named_with_what_is_missing_and_what_failed(written, measured):
    page = (written / "study" / "units.md").read_text()
    identities = {path.name for path in (measured / "small").iterdir()}
    failed = next(
        x for x in identities if "nan" in (measured / "small" / x / "unit.json").read_text()
    )
    for identity in identities - {failed}:
        assert identity in page
    assert "failed: ridge, seed 0 (the loss is nan)" in page
    assert re.search(r"Not trained: .*gla", page)
    assert "python -m experiments.study.report" in page


def test_published_numbers_stand_beside_ours(written):
    mixers = (written / "study" / "mixers.md").read_text()
    row = next(x for x in mixers.splitlines() if x.startswith("| softmax | 1,000 | 1 | 0.8900"))
    assert "0.7600" in row  # mean of the four tables, two folds 0.02 apart
    variants = (written / "study" / "final_state.md").read_text()
    row = next(x for x in variants.splitlines() if x.startswith("| deltanet | 1,000 | 2 | 0.8860"))
    assert "0.8860 <sup>ab</sup>" in row  # as Table 3 has it, and Table 2 has abc
    sizes = (written / "study" / "size_ranks.md").read_text()
    assert "| deltanet | 1,000 | 2 | 0.8860 |" in sizes
    cost = (written / "study" / "scaling.md").read_text()
    assert "| softmax | state_bytes | 128x | 2,340,000,000 | 16,000,000 |" in cost
    axes = (written / "study" / "two_axis.md").read_text()
    row = next(x for x in axes.splitlines() if x.startswith("| deltanet | roc_auc | 8x | 0.7806 |"))
    assert re.search(r"0\.7806 \| 0\.\d{4} \|", row)


def test_oracles_and_what_comes_near_them_have_numbers(written):
    large = (written / "study" / "oracle_real.md").read_text()
    assert "| deltanet | plain SDSS17 | 0.9851 | 0.8000 |" in large
    assert "| deltanet | oracle mean | 0.8902 | 0.7200 |" in large
    near = (written / "study" / "states.md").read_text()
    row = next(x for x in near.splitlines() if x.startswith("| deltanet | second pass |"))
    assert "+0.0500 ± 0.0000 | 50 % of +0.1000 | 2 |" in row
    ranks = (written / "study" / "size_ranks.md").read_text()
    row = next(x for x in ranks.splitlines() if x.startswith("| softmax | 1.0"))
    assert row.count("| 1.0") == 2  # the first of the arms has the highest scores
    contributions = (written / "study" / "update_dynamics.md").read_text()
    assert "| deltanet | 1 | -1.3 |" in contributions


def test_pages_of_the_smoke_scale_say_that_they_show_no_results(tmp_path, monkeypatch):
    """And do not replace those of the scale that is published, unless told to."""
    monkeypatch.chdir(tmp_path)
    few = {name: items()[name] for name in ("scaling", "length_gap")}
    monkeypatch.setattr(pages, "items", lambda: few)
    monkeypatch.setattr(pages, "FRONT", ("length_gap",))
    folder = made_up.unit(tmp_path, "deltanet", scale="smoke")
    made_up.lengths(folder, made_up.flat(0.7, noise=0.001), rows=(32, 128))
    assert main(["--scale", "smoke", "--measured", str(tmp_path)]) == 0
    page = (tmp_path / "runs" / "study" / "smoke" / "results" / "README.md").read_text()
    assert "Nothing on these pages is a result" in page
    assert "| **seen (one seed)** |" in page  # flat up to four times the trained 32 rows


def test_the_same_figure_is_the_same_file():
    cells = {"arm": "deltanet", "num_rows": [128, 256], "roc_auc": [0.6, 0.7]}
    summary = pd.DataFrame({**cells, "roc_auc_interval": 0.1})
    first, second = (drawing.svg(drawing.curves(summary, 128)) for _ in range(2))
    assert first == second
    assert "deltanet" in first


def test_figures_that_are_drawn_no_longer_go(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    for name in ("mixers-old.svg", "mine.svg"):
        (folder / name).write_text("old")
    write({"study/mixers-new.svg": "new", "README.md": "page"}, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["mine.svg", "mixers-new.svg"]
    assert (tmp_path / "README.md").read_text() == "page"


def test_nothing_measured_is_an_error_of_one_line(tmp_path, capsys):
    assert main(["--measured", str(tmp_path / "no"), "--output", str(tmp_path / "out")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "holds no unit of scale small" in lines[0]
    assert not (tmp_path / "out").exists()
    assert main(["--scale", "huge"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(measured, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["--measured", str(measured), "--output", str(tmp_path / "file")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("file is not a folder; name another folder.")


def test_a_damaged_measurement_is_refused(measured, tmp_path, capsys):
    copy = tmp_path / "measured"
    shutil.copytree(measured, copy)
    path = next(copy.glob("small/*/lengths.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert main(["--measured", str(copy), "--output", str(tmp_path / "out")]) == 2
    assert str(path) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "damaged: restore it"),
        ('{"arm": "x"}', "damaged: restore it"),
        (None, "is that of unit"),  # a copy of a folder, whose measurements would count twice
    ],
)
def test_a_folder_that_is_no_unit_is_refused(tmp_path, capsys, text, words):
    folder = made_up.unit(tmp_path, "deltanet")
    other = tmp_path / "small" / "other"
    other.mkdir()
    (other / "unit.json").write_text(text or (folder / "unit.json").read_text())
    (tmp_path / "small" / "notes.txt").write_text("files are left alone")
    assert main(["--measured", str(tmp_path), "--output", str(tmp_path / "pages")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(other / "unit.json") in line
    assert words in line
    assert not (tmp_path / "pages").exists()


def test_scores_that_no_reference_normalises_are_left_empty(tmp_path):
    """Its only arm is as good at all lengths: nothing is between the worst and the best."""
    made_up.lengths(made_up.unit(tmp_path, "linear_causal"), lambda *_: np.array(0.7))
    study = Study(Tables(load("small", tmp_path)), made_up.TRAINED)
    points = summary(study, of_arms(study.tables, "lengths", ["linear_causal"]))
    assert points["normalised_roc_auc"].isna().all()
    assert points["roc_auc"].notna().all()


def test_another_reading_stands_beside_plain_scores_of_the_same_seeds(tmp_path):
    for seed, level in ((0, 0.7), (1, 0.9)):
        folder = made_up.unit(tmp_path, "deltanet", seed)
        made_up.lengths(folder, lambda *_, level=level: np.array(level))
        if seed == 0:
            made_up.decay(folder, lambda *_: np.array(0.8), constants=(32,))
    study = Study(Tables(load("small", tmp_path)), made_up.TRAINED)
    lines = decay_at_evaluation(study, items()["update_dynamics"]).texts[0].splitlines()
    cells = [[cell.strip() for cell in x.split("|")[1:5]] for x in lines if "deltanet" in x]
    assert [(arm, seeds, score[:6]) for arm, _, seeds, score in cells] == [
        ("deltanet", "1", "0.7000"),
        ("deltanet, decay 32 at evaluation", "1", "0.8000"),
    ]

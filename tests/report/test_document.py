"""The whole report: what stands where, and what it says of what it cannot say."""

import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from report.folders import fail, rows, write
from scipy.stats import norm

from tabicl_linear.errors import DataError
from tabicl_linear.report import benchmark_figures
from tabicl_linear.report.benchmark_figures import BANDWIDTH, smoothed_ranks, styles
from tabicl_linear.report.comparison import compare
from tabicl_linear.report.document import document
from tabicl_linear.report.metric_order import METRICS
from tabicl_linear.report.report_tables import marks, pairwise_rows
from tabicl_linear.report.results import read

SCORES = [0.6, 0.7, 0.5, 0.8, 0.65, 0.55, 0.75]
PRINTED = ("roc_auc", "accuracy")


def made(*folders, reference=None, models=None):
    results = read(folders, {}, models)
    return document(results, reference=reference, command="tabicl-linear report x")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two models on seven tables, one of which failed; names that want escaping."""
    b = rows("b $x$ <i>", [score - 0.01 for score in SCORES], metrics=PRINTED)
    b = fail(b, "t6", 0, "ValueError: <script>")
    folder = tmp_path_factory.mktemp("files")
    return made(write(folder, rows("a", SCORES, metrics=PRINTED), b))


def test_the_page_has_everything_in_it_and_asks_for_nothing(files):
    page = files["report.html"]
    sources = re.findall(r'(?:src|href)="([^"]{20})', page)
    assert len(sources) == 6  # three figures for each metric
    assert set(sources) == {"data:image/svg+xml;b"}
    assert "<link" not in page
    assert "<script" not in page
    assert "ValueError: &lt;script&gt;" in page
    assert "b $x$ &lt;i&gt;" in page
    assert "{&#39;folds&#39;: 2}" in page


def test_every_table_is_there_in_three_formats(files):
    names = {name.rpartition(".")[0] for name in files if name.startswith("tables/")}
    kinds = ["means", "missing", "scores-small", "differences-small", "pairs-small"]
    kinds += [f"tables-small-{metric}" for metric in PRINTED]
    assert names == {f"tables/{kind}" for kind in kinds}
    assert all(f"{name}.{suffix}" in files for name in names for suffix in ("md", "tex", "csv"))


def test_figures_are_whole_and_the_same_each_time(files, tmp_path):
    figures = {name: text for name, text in files.items() if name.startswith("figures/")}
    kinds = ("critical-difference", "differences", "rank-by-rows")
    assert set(figures) == {f"figures/{k}-small-{m}.svg" for k in kinds for m in PRINTED}
    for name, text in figures.items():
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert f"]({name})" in files["report.md"]
    pair = rows("a", SCORES, metrics=["ece"]), rows("b", SCORES[::-1], metrics=["ece"])
    folder = write(tmp_path / "x", *pair)
    assert made(folder) == made(folder)


def test_means_are_over_common_tables_and_the_report_says_so(files):
    line = next(x for x in files["tables/means.csv"].splitlines() if x.startswith("a,"))
    assert float(line.split(",")[1]) == pytest.approx(np.mean(SCORES[:6]))
    assert "small (6 of 7 tables)" in files["tables/means.md"]
    said = (
        "means, ranks and tests are over the 6 of 7 tables that all models have (b $x$ <i> lacks 1)"
    )
    assert said in files["report.md"]
    assert "| small | b $x$ \\<i> | t6 | 1 of 2 | ValueError: \\<script> |" in files["report.md"]


def test_pairs_are_there_as_numbers(files, tmp_path):
    (tmp_path / "pairs.csv").write_text(files["pairs.csv"])
    pairs = pd.read_csv(tmp_path / "pairs.csv")
    assert pairs["metric"].tolist() == list(PRINTED)
    assert pairs["tables"].tolist() == [6, 6]
    # Six differences of one sign, of equal size: 2 of 2 ** 6 signs.
    assert pairs["adjusted"].tolist() == pytest.approx([2 / 64] * 2)
    assert pairs["difference"].tolist() == pytest.approx([0.01] * 2)
    assert pairs["significant"].all()


def test_pairs_have_roc_auc_above_the_diagonal_and_accuracy_below():
    scores = pd.DataFrame({"a": SCORES, "b": [score - 0.01 for score in SCORES]})
    differ = compare(scores, higher_is_better=True)
    alike = compare(scores.assign(b=scores["a"].to_numpy()[::-1]), higher_is_better=True)
    first, second = pairwise_rows(differ, alike, ["a", "b"])
    assert first[-1].value == pytest.approx(2 / 2**7)
    assert second[-2].value > 0.5


def test_differences_are_from_the_reference(tmp_path):
    losses = rows("a", SCORES, metrics=["log_loss"]), rows("b", [0.1] * 7, metrics=["log_loss"])
    folder = write(tmp_path / "x", *losses)
    files = made(folder, reference="b")
    gap = np.mean(SCORES) - 0.1
    assert f"| a | {gap:+.4f} ± " in files["tables/differences-small.md"]
    assert "| 0 : 0 : 7 |" in files["tables/differences-small.md"]
    assert f"| b | {-gap:+.4f} ± " in made(folder)["tables/differences-small.md"]
    with pytest.raises(DataError, match="--reference c: no such model; there are a, b"):
        made(folder, reference="c")


def test_any_name_of_a_benchmark_makes_files(tmp_path):
    frames = [rows(x, [0.5, 0.6], metrics=["ece"], benchmark="my/own set") for x in "ab"]
    files = made(write(tmp_path / "x", *frames))
    assert "figures/differences-my%2Fown%20set-ece.svg" in files
    assert "](figures/differences-my%252Fown%2520set-ece.svg)" in files["report.md"]


def test_equal_numbers_share_a_mark_and_one_alone_has_none():
    nan = float("nan")
    assert marks([0.4, nan, 0.5, 0.5], higher_is_better=True) == ["", "", "bold", "bold"]
    assert marks([0.4, nan, 0.5], higher_is_better=False) == ["bold", "", "underline"]
    assert marks([nan, 0.5], higher_is_better=True) == ["", ""]


def test_one_model(tmp_path):
    files = made(write(tmp_path / "x", rows("a", SCORES, metrics=PRINTED)))
    assert "small: there is one model, so nothing is compared." in files["report.md"]
    assert not any(name.startswith("figures/") for name in files)
    assert "tables/scores-small.md" in files


def test_one_table(tmp_path):
    frames = [rows(name, [x], metrics=["roc_auc"]) for name, x in (("a", 0.5), ("b", 0.6))]
    files = made(write(tmp_path / "x", *frames))
    said = "with 1 table and 2 models no difference can be significant; the smallest adjusted p"
    assert f"{said} there is 1." in files["report.md"]
    # Tables of one size have no rank against size.
    kinds = {name.split("-small")[0] for name in files if name.startswith("figures/")}
    assert kinds == {"figures/critical-difference", "figures/differences"}


def test_nothing_in_common_and_nothing_at_all(tmp_path):
    a = fail(rows("a", [0.5, 0.6]), "t0", 0, "no")
    b = fail(rows("b", [0.5, 0.6]), "t1", 0, "no")
    files = made(write(tmp_path / "x", a, b))
    assert "no table is complete for every model, so there is no comparison" in files["report.md"]
    assert "tables/scores-small.md" not in files
    files = made(write(tmp_path / "y", fail(rows("a", [0.5]), "t0", 0, "no")))
    assert "small: a completed no table and is not compared." in files["report.md"]


def test_a_reference_that_a_benchmark_lacks_is_said(tmp_path):
    one = write(tmp_path / "one", *(rows(x, [0.5, 0.6], metrics=["ece"]) for x in "ab"))
    big = [rows(x, [0.5, 0.6], metrics=["ece"], benchmark="big") for x in "bc"]
    files = made(one, write(tmp_path / "two", *big), reference="a")
    assert "big: a was not scored; differences are from b." in files["report.md"]


PAPER = {"deltanet": 0.7, "softmax": 0.8, "catboost": 0.9, "mine": 0.75}


def test_the_paper_stands_beside(tmp_path):
    frames = [
        rows(name, [mean + 0.08 * i for i in (-1, 0, 1)], benchmark="tabarena", metrics=PRINTED)
        for name, mean in PAPER.items()
    ]
    files = made(write(tmp_path / "x", *frames))
    means = files["tables/means.md"]
    assert (
        "| TabArena\\* (3 of 38 tables) ROC-AUC ↑ | TabArena\\* (3 of 38 tables) ROC-AUC paper |"
        in means
    )
    assert "| softmax | <u>0.8000</u> <sup>a</sup> | 0.8172 |" in means
    two = files["tables/paper-table2.md"]
    assert "On TabArena\\* the paper has 38 tables and we 3: these means do not compare." in two
    assert "| Delta | 0.8074 <sup>b</sup> | <u>0.7000</u> <sup>a</sup> |" in two
    assert "| CatBoost | 0.8231 | 0.9000 |" in two
    assert "| Mamba-2 | 0.7912 <sup>d</sup> | \N{EN DASH} |" in two
    # What the paper lacks stands in a last block.
    assert two.splitlines()[-1].startswith("| mine | \N{EN DASH} | 0.7500 |")
    assert "tables/paper-table3.md" in files
    nine = files["tables/paper-table9.csv"].splitlines()
    assert nine[0].endswith("p against 1,p against 7")
    assert nine[1].startswith("1,Softmax Non-Causal,0.8172,")
    assert float(nine[1].split(",")[3]) == pytest.approx(0.8)
    assert "tables/paper-table8.md" not in files
    assert "tables/paper-table1.md" not in files


def test_training_setups_are_means_over_complete_families(tmp_path):
    setups = {"": 0.5, "_int_mt": 0.8, "_int_st": 0.6, "_comb_mt": 0.7}
    families = {"gla": 0.0, "mamba2": 0.1}
    frames = [
        rows(f + s, [x + y, x + y + 0.02], benchmark="openml-cc18", metrics=PRINTED)
        for s, x in setups.items()
        for f, y in families.items()
    ]
    partial = rows("deltanet", [0.1, 0.1], benchmark="openml-cc18", metrics=PRINTED)
    files = made(write(tmp_path / "x", *frames, partial))
    lines = files["tables/paper-table1.md"].splitlines()[-4:]
    result = [
        float(line.split("|")[4].replace("*", "").replace("<u>", "").split("<")[0])
        for line in lines
    ]
    # Interleaved multi-target, combined single-target, interleaved single, combined multi.
    assert result == pytest.approx([0.86, 0.56, 0.66, 0.76])


def test_smoothed_ranks_are_kernel_means():
    rows_, at = np.array([100.0, 300.0, 1000.0]), np.array([100.0, 250.0, 1e6])
    by_table = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])
    weights = norm.pdf(np.log10(at)[:2, None], np.log10(rows_), BANDWIDTH)
    truth = weights @ by_table / weights.sum(1, keepdims=True)
    result = smoothed_ranks(rows_, by_table, at)
    np.testing.assert_allclose(result[:2], truth, rtol=1e-12)
    # Nothing is measured three decades off.
    assert np.isnan(result[2]).all()
    np.testing.assert_allclose(result[:2].sum(1), 3)


def test_a_bar_far_longer_than_the_others_is_cut(monkeypatch):
    drawn = {}
    monkeypatch.setattr(benchmark_figures, "_svg", lambda figure: drawn.update(figure=figure) or "")
    scores = pd.DataFrame(0.01, index=[f"t{i}" for i in range(40)], columns=["a", "b"])
    scores["a"] = 0.0
    for longest, cut in ((0.015, []), (0.4, ["+0.40"])):
        scores.loc["t7", "b"] = longest
        benchmark_figures.differences(scores, "a", METRICS["roc_auc"])
        (axes,) = drawn["figure"].axes
        assert [text.get_text() for text in axes.texts] == cut
        assert max(bar.get_width() for bar in axes.patches) == pytest.approx(0.015)


def test_many_models_look_different():
    looks = styles([f"m{i}" for i in range(28)])
    assert len({tuple(look.values()) for look in looks.values()}) == 28


def test_metrics_are_those_of_results():
    assert list(METRICS) == ["roc_auc", "accuracy", "log_loss", "ece"]

"""The same table in four forms, whatever stands in it."""

import csv
import io
from html.parser import HTMLParser

import pytest

from tabicl_linear.report.layout import (
    DASH,
    Cell,
    Table,
    comma_separated,
    hypertext,
    latex,
    markdown,
    number,
    signed,
)

NASTY = "a|b_<i>&%$#{}\\~^*`"
TABLE = Table(
    "Means of " + NASTY,
    ["Model", "AUC ↑", "ACC ↑"],
    [
        [[Cell(NASTY), number(0.91236, mark="bold", letters="ab"), number(0.5)]],
        [[Cell("plain_name"), number(1 / 3, mark="underline"), DASH]],
    ],
    [("", 1), ("Both*", 2)],
)


@pytest.mark.parametrize(
    ("value", "plain", "with_sign"),
    [(-0.00004, "0.0000", "0.0000"), (0.0, "0.0000", "0.0000"), (-0.00006, "-0.0001", "-0.0001")],
)
def test_what_is_rounded_to_zero_has_no_sign(value, plain, with_sign):
    assert number(value).text == plain
    assert signed(value) == with_sign


def test_a_sign_is_always_there():
    assert (signed(0.25, 2), signed(-0.25, 2), signed(12.0, 0)) == ("+0.25", "-0.25", "+12")


def test_markdown():
    lines = markdown(TABLE).splitlines()
    assert lines[2] == r"| Model | Both\* AUC ↑ | Both\* ACC ↑ |"
    assert lines[3] == "| --- | --: | --: |"
    assert lines[4].endswith("| **0.9124** <sup>ab</sup> | 0.5000 |")
    assert lines[4].startswith(r"| a\|b\_\<i>&%$#{}\\~^\*\` |")
    assert lines[5] == "| plain_name | <u>0.3333</u> | \N{EN DASH} |"


def test_latex():
    text = latex(TABLE)
    assert r"\multicolumn{2}{c}{Both*} \\" in text
    assert r"\textbf{0.9124}\textsuperscript{ab} & 0.5000 \\" in text
    assert r"plain\_name & \underline{0.3333} & -- \\" in text
    assert r"a|b\_$<$i$>$\&\%\$\#\{\}\textbackslash{}\textasciitilde{}\textasciicircum{}*`" in text
    assert text.count(r"\midrule") == 2
    assert r"\begin{tabular}{lcc}" in text
    assert text.isascii()


def test_numbers_of_csv_are_not_rounded():
    result = list(csv.DictReader(io.StringIO(comma_separated(TABLE))))
    assert result[0] == {
        "Model": NASTY,
        "Both* AUC ↑": "0.91236",
        "Both* AUC ↑ letters": "ab",
        "Both* ACC ↑": "0.5",
    }
    assert float(result[1]["Both* AUC ↑"]) == 1 / 3
    assert result[1]["Both* ACC ↑"] == ""


def test_html_is_closed_and_escaped():
    class Reader(HTMLParser):
        open_, text, spans = [], "", 0

        def handle_starttag(self, tag, attrs):
            self.open_.append(tag)
            self.spans += sum(int(value) for name, value in attrs if name == "colspan")

        def handle_endtag(self, tag):
            assert self.open_.pop() == tag

        def handle_data(self, data):
            self.text += data

    reader = Reader()
    reader.feed(hypertext(TABLE))
    assert reader.open_ == []
    assert reader.text.count(NASTY) == 2
    assert reader.spans == 3


@pytest.mark.parametrize("write", [markdown, latex])
def test_line_breaks_do_not_break_rows(write):
    table = Table("c", ["a"], [[[Cell("one\ntwo")]]])
    assert "one two" in write(table)

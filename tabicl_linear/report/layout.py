"""A table of cells, and functions that write it as Markdown, LaTeX, CSV and HTML."""

import csv
import html
import io
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Literal, NamedTuple

Mark = Literal["", "bold", "underline"]

_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": "$<$", ">": "$>$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"},
    **{"±": r"$\pm$", "\N{EN DASH}": "--"},
}
# Underscores inside of words are not escaped, as they have no meaning in Markdown.
_MARKDOWN = re.compile(r"[\\|<*`]|\b_|_\b")


class Cell(NamedTuple):
    """A cell.

    Attributes:
        text: The text for people, with rounded numbers.
        value: The number before rounding, for CSV; None to use the text.
        mark: Bold for the best of a column, underlined for the second best.
        letters: Letters of the model's groups, shown as a superscript.
    """

    text: str
    value: float | None = None
    mark: Mark = ""
    letters: str = ""


DASH = Cell("\N{EN DASH}")
"""The cell for a value that does not exist."""


class Table(NamedTuple):
    """A table.

    Attributes:
        caption: What it shows.
        header: Headings of the columns.
        blocks: Blocks of rows of cells; a rule separates two blocks.
        spans: A second row of headings above the first, each with the number of columns that it
            spans; may be empty.
        text_columns: Number of columns of text, at the left; the others hold numbers.
    """

    caption: str
    header: Sequence[str]
    blocks: Sequence[Sequence[Sequence[Cell]]]
    spans: Sequence[tuple[str, int]] = ()
    text_columns: int = 1

    def rows(self) -> list[Sequence[Cell]]:
        """The rows of all blocks."""
        return list(chain.from_iterable(self.blocks))

    def headings(self) -> list[str]:
        """The full heading of each column: that above it and its own."""
        above = [title for title, width in self.spans for _ in range(width)] or [""] * len(
            self.header
        )
        return [f"{a} {b}".strip() for a, b in zip(above, self.header, strict=True)]


def number(value: float, digits: int = 4, mark: Mark = "", letters: str = "") -> Cell:
    """A cell with a number, rounded to `digits` decimals; a dash for NaN."""
    if value != value:
        return DASH
    return Cell(f"{value:z.{digits}f}", float(value), mark, letters)


def signed(value: float, digits: int = 4) -> str:
    """A number with its sign, rounded to `digits` decimals; zero has no sign."""
    text = f"{value:+z.{digits}f}"
    return text if float(text) else text.removeprefix("+")


def p_value(p: float) -> Cell:
    """A cell with an adjusted p as the paper prints it: as .03 or <.01, bold if significant."""
    below = next((f"<{bound}" for bound in (".001", ".01") if p < float(bound)), None)
    text = below or f"{p:.2f}".removeprefix("0")
    return Cell(text, p, "bold" if p <= 0.05 else "")


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, with its caption above."""

    def cell(x: Cell) -> str:
        text = _MARKDOWN.sub(r"\\\g<0>", _one_line(x.text))
        text = {"": text, "bold": f"**{text}**", "underline": f"<u>{text}</u>"}[x.mark]
        return f"{text} <sup>{x.letters}</sup>" if x.letters else text

    def line(texts: Iterable[str]) -> str:
        return f"| {' | '.join(texts)} |"

    words = table.text_columns
    rules = ["---"] * words + ["--:"] * (len(table.header) - words)
    heading = line(cell(Cell(text)) for text in table.headings())
    rows = [line(map(cell, row)) for row in table.rows()]
    return "\n".join([cell(Cell(table.caption)), "", heading, line(rules), *rows, ""])


def latex(table: Table) -> str:
    """The table as a LaTeX `table`, which needs the package booktabs."""

    def cell(x: Cell) -> str:
        text = _latex(x.text)
        marks = {"": text, "bold": f"\\textbf{{{text}}}", "underline": f"\\underline{{{text}}}"}
        return marks[x.mark] + (f"\\textsuperscript{{{x.letters}}}" if x.letters else "")

    def line(texts: Iterable[str]) -> str:
        return " & ".join(texts) + r" \\"

    spans = [f"\\multicolumn{{{width}}}{{c}}{{{_latex(title)}}}" for title, width in table.spans]
    body: list[str] = []
    for block in table.blocks:
        body += ["\\midrule", *(line(map(cell, row)) for row in block)]
    columns = "l" * table.text_columns + "c" * (len(table.header) - table.text_columns)
    return "\n".join(
        [
            "% Needs \\usepackage{booktabs}.",
            "\\begin{table}[t]",
            "\\centering",
            f"\\caption{{{_latex(table.caption)}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            *([line(spans)] if spans else []),
            line(map(_latex, table.header)),
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table}",
            "",
        ]
    )


def comma_separated(table: Table) -> str:
    """The table as CSV, with numbers before rounding, and letters in columns of their own."""
    headings = table.headings()
    lettered = [any(row[i].letters for row in table.rows()) for i in range(len(headings))]

    def spread(cells: Sequence[str], letters: Sequence[str]) -> list[str]:
        both = zip(cells, letters, lettered, strict=True)
        return [text for cell, extra, has in both for text in ((cell, extra) if has else (cell,))]

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(spread(headings, [f"{heading} letters" for heading in headings]))
    for row in table.rows():
        values = [x.text if x.value is None else repr(float(x.value)) for x in row]
        writer.writerow(
            spread(["" if text == DASH.text else text for text in values], [x.letters for x in row])
        )
    return out.getvalue()


def hypertext(table: Table) -> str:
    """The table as an HTML `<table>`; all text is escaped."""

    def cell(x: Cell, i: int) -> str:
        text = html.escape(x.text)
        text = {"": text, "bold": f"<b>{text}</b>", "underline": f"<u>{text}</u>"}[x.mark]
        raised = f"<sup>{html.escape(x.letters)}</sup>" if x.letters else ""
        return f"<td{_class(i)}>{text}{raised}</td>"

    def _class(i: int) -> str:
        return ' class="text"' if i < table.text_columns else ""

    def row(cells: Iterable[str]) -> str:
        return f"<tr>{''.join(cells)}</tr>"

    spans = [f'<th colspan="{width}">{html.escape(title)}</th>' for title, width in table.spans]
    header = [f"<th{_class(i)}>{html.escape(text)}</th>" for i, text in enumerate(table.header)]
    bodies = [
        f"<tbody>{''.join(row(cell(x, i) for i, x in enumerate(cells)) for cells in block)}</tbody>"
        for block in table.blocks
    ]
    head = (row(spans) if spans else "") + row(header)
    caption = f"<caption>{html.escape(table.caption)}</caption>"
    return f"<table>{caption}<thead>{head}</thead>{''.join(bodies)}</table>"


FORMATS: dict[str, Callable[[Table], str]] = {
    "md": markdown,
    "tex": latex,
    "csv": comma_separated,
}
"""The function that writes a table in each format, by file suffix."""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in _one_line(text))

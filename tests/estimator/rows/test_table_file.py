"""Files of tables, whole and in pieces: separators, encodings, compression, texts as written."""

import gzip
import io
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from tabicl_linear.errors import DataError
from tabicl_linear.estimator.columns.preprocessor import TablePreprocessor
from tabicl_linear.estimator.rows import table_file
from tabicl_linear.estimator.rows.table_file import STANDARD_INPUT, TableFile, suffix_of
from tabicl_linear.estimator.rows.text_cells import TextFormat


@pytest.fixture(params=["t.csv", "T.PARQUET"])
def path(request, tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "ROWS_PER_PIECE", 10)
    frame = pd.DataFrame({"a": np.arange(25), "b": list("vwxyz") * 5, "c": np.nan})
    path = tmp_path / request.param
    (frame.to_csv if path.suffix == ".csv" else frame.to_parquet)(path, index=False)
    return path


def test_pieces_are_the_file(path):
    file = TableFile(path)
    assert file.columns == ["a", "b", "c"]
    assert file.num_rows() == 25
    pieces = list(file.pieces())
    assert [len(piece) for piece in pieces] == [10, 10, 5]
    whole = pd.concat(pieces, ignore_index=True)
    assert whole.a.tolist() == list(range(25))
    assert whole.b.tolist() == list("vwxyz") * 5
    assert [piece.columns.tolist() for piece in file.pieces(["c", "a"])] == [["c", "a"]] * 3
    assert file.labels("b").tolist() == list("vwxyz") * 5
    with pytest.raises(DataError, match=r"no column 'd'.*a, b, c\. Name one of"):
        file.labels("d")


@pytest.mark.parametrize("header", ["a,b", ",a,b"])
def test_a_header_that_is_repeated_is_no_row(header, tmp_path, monkeypatch):
    """As in the file that `cat a.csv b.csv` writes."""
    monkeypatch.setattr(table_file, "ROWS_PER_PIECE", 2)
    path = tmp_path / "t.csv"
    rows = "".join(f"{'7,' * header.count(',a')}a,{row}\n" for row in range(3))
    path.write_text(f"{header}\n{rows}{header}\n{rows}")
    for read in (TableFile(path).frame, lambda: list(TableFile(path).pieces())):
        with pytest.raises(DataError, match=r"t.csv: Row 4 repeats the header, .*; remove it\."):
            read()
    path.write_text(f"{header}\n{rows}{rows}")
    assert len(TableFile(path).frame()) == 6
    path.write_text("a\na\n")
    assert TableFile(path).frame()["a"].tolist() == ["a"], "one word is no header"


@pytest.mark.parametrize("more", ["", "\n", "\r\n\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize("line", ["é,5", '"é,6"', '"a ""b"", c",5'])
def test_a_last_line_that_was_cut_is_shown(line, encoding, more, tmp_path):
    path = tmp_path / "t.csv"
    text = f"a,b,c\n1,2,é\n{line}"
    path.write_bytes((text + more).encode(encoding))
    with pytest.warns(
        UserWarning, match="t.csv: the last line, .* if the file was cut off"
    ) as shown:
        TableFile(path, TextFormat(encoding=encoding))
    assert repr(line) in str(shown[0].message)
    path.write_bytes((text + ",6,7" + more).encode(encoding))
    TableFile(path, TextFormat(encoding=encoding))


@pytest.mark.parametrize(
    "text", ["a,b\n", "a,b", "a\n\n", "a,b\n1,\n", 'a,b\n1,"2\n3"\n', "a,b\r1,2", 'a,b\n5"\n']
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_other_last_lines_are_not(text, encoding, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(encoding))
    TableFile(path, TextFormat(encoding=encoding))


def test_an_empty_line_is_a_row_where_there_is_one_column(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n\n3\n")
    file = TableFile(path)
    pieces = pd.concat(file.pieces())
    assert file.num_rows() == 3
    for frame in (file.frame(), pieces):
        np.testing.assert_array_equal(frame.a, [1, np.nan, 3])
    path.write_text("a,b\n1,2\n\n3,4\n")
    assert TableFile(path).frame().a.tolist() == [1, 3]


TYPED = {
    "time32[s]": [3600 * i for i in range(20)],
    "time64[us]": [3_600_500_000 * i for i in range(20)],
    "time64[ns]": [3_600_000_000_001 * i for i in range(20)],
    "decimal": [Decimal(i) / 4 for i in range(20)],
    "binary": [bytes([97 + i % 3]) for i in range(20)],
    "list": [[i % 3] for i in range(20)],
    "date": [date(2024, 1, 1 + i) for i in range(20)],
    "timestamp": [datetime(2024, 1, 1 + i, i, tzinfo=UTC) for i in range(20)],
    "bool": [i % 3 == 0 if i % 4 else None for i in range(20)],
    "int": [i if i % 4 else None for i in range(20)],
    "long": [2**53 + i if i % 4 else None for i in range(20)],
    "dictionary": pa.array(list("zax10") * 4).dictionary_encode(),
}


@pytest.mark.filterwarnings(
    "ignore:Text is read in columns:UserWarning", "ignore:Whole numbers beyond:UserWarning"
)
@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_table_is_the_same_as_parquet_and_as_csv(kind, in_pieces, tmp_path):
    cells = pa.array(TYPED[kind], kind if kind.startswith("time") and "[" in kind else None)
    parquet.write_table(pa.table({"a": cells}), tmp_path / "t.parquet")
    TableFile(tmp_path / "t.parquet").frame().to_csv(tmp_path / "t.csv", index=False)
    files = [TableFile(tmp_path / name) for name in ("t.parquet", "t.csv")]
    frames = [next(file.pieces()) if in_pieces else file.frame() for file in files]
    learnt = [TablePreprocessor().fit(frame) for frame in frames]
    matrices = [columns.transform(frame) for columns in learnt for frame in frames]
    for matrix in matrices[1:]:
        np.testing.assert_array_equal(matrix, matrices[0])


def test_a_column_without_a_name_has_the_one_of_pandas(tmp_path):
    (tmp_path / "t.csv").write_text(",a\n0,1\n1,2\n")
    file = TableFile(tmp_path / "t.csv")
    assert file.columns == ["Unnamed: 0", "a"]
    assert [piece.columns.tolist() for piece in file.pieces()] == [["Unnamed: 0", "a"]]


@pytest.mark.parametrize(("text", "rows"), [("a\n", 0), ("a", 0), ("a\n1", 1), ("a\n1\n2\n", 2)])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_of_csv(text, rows, end, tmp_path):
    (tmp_path / "t.csv").write_bytes(text.replace("\n", end).encode())
    assert TableFile(tmp_path / "t.csv").num_rows() == rows


def test_few_of_many_columns_are_named(tmp_path):
    (tmp_path / "t.csv").write_text(",".join(f"c{i}" for i in range(30)))
    with pytest.raises(DataError, match="c8, c9 and 20 more"):
        TableFile(tmp_path / "t.csv").require("y")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,a\n1,2\n", "'a' occurs more than once"),
        ("t.csv", b"\xef\xbb\xbf", "is empty"),
        ("t.csv", b'"a","b"\n"1",2,3\n', "line 2 has 3 fields.*as R writes them.*row.names"),
        ("t.csv", b"a,b\n1,2,3,4\n", "line 2 has 4 fields and the header 2; put quotes around"),
        ("t.csv", b"a,b\n1,2\n3,4,5\n", "line 3 has 3 fields and the header 2; put quotes around"),
        ("t.csv", b'a,b\n1,"2\n', "inside string.*close the quote"),
        ("t.csv", b"a,b\n\xff,1\n", "not utf-8 text"),
        ("t.parquet", b"PAR1", "not a readable parquet"),
        ("t.xls", b"", "unknown suffix '.xls'"),
    ],
)
def test_unreadable_files_are_named_with_the_reason(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{name}.*{message}"):
        list(TableFile(path).pieces())
    with pytest.raises(DataError, match=r"no such file\."):
        TableFile(tmp_path / "none.csv")
    with pytest.raises(DataError, match="no such file; download it first"):
        TableFile(Path("https://example.org/t.csv"))
    with pytest.raises(DataError, match="is a folder"):
        TableFile(tmp_path)


IDS = [4611686018427387905, None, 4611686018427387906, 9223372036854775807]
"""pandas makes floats of whole numbers among which some are missing, of 16 digits."""


@pytest.mark.parametrize("in_pieces", [False, True])
def test_ids_with_gaps_keep_their_digits(in_pieces, tmp_path):
    lines = [f"{'' if cell is None else cell},{str(cell)[:3]}" for cell in IDS]
    amounts = "\n".join(f"{line},{number}" for number, line in enumerate(lines))
    (tmp_path / "t.csv").write_text(f"id,short,amount\n{amounts}e20\n".replace("Non", ""))
    columns = {"id": pa.array(IDS), "short": [461, None, 461, 922]}
    hashes = pa.array([None if cell is None else cell + 2**63 for cell in IDS], pa.uint64())
    parquet.write_table(pa.table({**columns, "hash": hashes}), tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        file = TableFile(tmp_path / name)
        assert "id" not in file.texts()
        table = next(file.pieces()) if in_pieces else file.frame()
        assert table["id"].dtype == "Int64"
        assert table["id"].tolist() == [pd.NA if cell is None else cell for cell in IDS]
        others = {"csv": ["float64", "float64"], "parquet": ["Int64", "UInt64"]}
        assert table.dtypes.iloc[1:].tolist() == others[name[2:]]
    assert table["hash"].dropna().tolist() == [cell + 2**63 for cell in IDS if cell]


def test_later_pieces_of_ids_have_gaps(tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "ROWS_PER_PIECE", 2)
    (tmp_path / "t.csv").write_text("a,b\n9007199254740993,1\n3,2\n,3\n9007199254740995,4\nx,5\n")
    pieces = list(TableFile(tmp_path / "t.csv").pieces(texts=()))
    assert [piece["a"].dropna().tolist() for piece in pieces] == [
        [2**53 + 1, 3],
        [2**53 + 3],
        ["x"],
    ]
    assert TableFile(tmp_path / "t.csv").num_rows() == 5


def test_names_are_those_in_the_file(tmp_path):
    """pandas describes beside them that they were numbers or tuples."""
    for names in ([0, 1], [("a", "x"), ("b", "y")]):
        frame = pd.DataFrame([[1, "x"], [2, "y"]], columns=pd.Index(names))
        frame.to_parquet(tmp_path / "t.parquet")
        file = TableFile(tmp_path / "t.parquet")
        texts = [str(name) for name in names]
        assert file.columns == file.frame().columns.tolist() == texts
        assert file.labels(texts[1]).tolist() == ["x", "y"]


def test_texts_stay_texts_in_pieces_that_look_like_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(table_file, "ROWS_PER_PIECE", 2)
    (tmp_path / "t.csv").write_text("a,b\nA12,1\n007,2\n007,3\n012,\n")
    file = TableFile(tmp_path / "t.csv")
    assert file.texts() == ["a"]
    assert [piece.a.tolist() for piece in file.pieces()] == [["A12", "007"], ["007", "012"]]
    assert [piece.b.dtype.kind for piece in file.pieces()] == ["i", "f"]
    assert [piece.b.tolist()[0] for piece in file.pieces(texts=["b"])] == ["1", "3"]
    pd.DataFrame({"a": ["x"], "b": [1], "c": pd.Categorical(["u"])}).to_parquet(
        tmp_path / "t.parquet"
    )
    assert TableFile(tmp_path / "t.parquet").texts() == ["a", "c"]


@pytest.mark.parametrize("name", [None, "id"])
def test_an_index_that_pandas_wrote_is_no_column(tmp_path, name):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    frame.index = pd.Index([5, 7, 6], name=name)
    frame.to_parquet(tmp_path / "t.parquet")
    file = TableFile(tmp_path / "t.parquet")
    assert file.columns == ["a", "b"]
    (piece,) = file.pieces()
    assert piece.columns.tolist() == ["a", "b"]
    assert piece.a.tolist() == [1, 2, 3]
    assert file.labels("b").tolist() == ["x", "y", "z"]


def test_separator_and_encoding(tmp_path):
    path = tmp_path / "t.csv"
    table = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z,\n;\t"], "ü": [0.5, np.nan, 1e300]})
    table.to_csv(path, index=False, sep=";", encoding="latin-1")
    with pytest.raises(DataError, match=r"not utf-8 text \(byte 0xfc\).*--encoding latin-1"):
        TableFile(path, TextFormat(sep=";")).frame()
    read = TableFile(path, TextFormat(sep=";", encoding="latin-1")).frame()
    pd.testing.assert_frame_equal(read, table, check_dtype=False)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + b"a,b\n1,2\n")
    table = TableFile(tmp_path / "t.csv", TextFormat(as_written=("a",))).frame()
    assert table.to_dict("list") == {"a": ["1"], "b": [2]}


@pytest.mark.parametrize("wrap", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_standard_input(monkeypatch, wrap):
    stream = SimpleNamespace(buffer=io.BytesIO(wrap(b"a\tb\n1\t2\n")))
    monkeypatch.setattr(sys, "stdin", stream)
    table = TableFile(STANDARD_INPUT, TextFormat(sep="\t")).frame()
    assert table.to_dict("list") == {"a": [1], "b": [2]}


def test_text_columns_are_read_as_written(tmp_path):
    (tmp_path / "t.csv").write_text("id,x,y\n007,NA,NA\n1.0,,None\n,n/a,-\n")
    table = TableFile(
        tmp_path / "t.csv", TextFormat(as_written=("id", "y"), na_values=["-"])
    ).frame()
    assert table["id"].tolist()[:2] == ["007", "1.0"]
    assert table["y"].tolist()[:2] == ["NA", "None"]
    assert table[["id", "y"]].isna().to_numpy()[2].all()
    assert table["x"].isna().all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b\n", "header but no rows"),
        (b"a,b\n1,2\n3,4\n5,6,7\n", "line 4 has 3 fields and the header 2"),
        (b"a,b\n1,2,\n3,4,\n", "line 2 has 3 fields and the header 2"),
        (b"a,a\n1,2\n", "column name 'a' occurs more than once"),
        (b"\x1f\x8bno", "not a whole gzip file"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:10] + b"\xff" * 20, "not a whole gzip file"),
        (b'a,b\n"1,2\n', "not a readable table"),
        (b"PK\x03\x04\x14\0", "no text: the file is an archive, as Excel's"),
        (b"ARROW1\0\0\xff", "holds an Arrow table; save it as Parquet"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_files_that_cannot_be_read(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=message) as refusal:
        TableFile(tmp_path / "t.csv").frame()
    assert "\n" not in str(refusal.value)
    assert "t.csv" in str(refusal.value)


def test_parquet_by_the_name_of_text(tmp_path):
    pd.DataFrame({"a": [1, 2]}).to_parquet(tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"t.csv: This is no text: .*Parquet table; name it"):
        TableFile(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("PAR1,b\n1,2\n")
    assert TableFile(tmp_path / "t.csv").columns == ["PAR1", "b"]


def test_text_of_another_encoding(tmp_path):
    (tmp_path / "t.csv").write_bytes("a\n1\n".encode("utf-16-le"))
    with pytest.raises(DataError, match=r"not utf-16 text .*--encoding"):
        TableFile(tmp_path / "t.csv", TextFormat(encoding="utf-16")).frame()


@pytest.mark.parametrize("name", ["t.txt", "t.gz", "t.parquet.gz", "t", "t.csv.zip"])
def test_unknown_suffixes(name):
    with pytest.raises(DataError, match="unknown suffix"):
        suffix_of(Path(name))


def test_names_are_those_of_pandas(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\na,,b\n1,2,3\n")
    assert TableFile(path).columns == ["a", "Unnamed: 1", "b"]
    assert TableFile(path).frame().columns.tolist() == ["a", "Unnamed: 1", "b"]
    path.write_text('"a;b";c;NA\n')
    assert TableFile(path, TextFormat(sep=";")).columns == ["a;b", "c", "NA"]
    path.write_text("\ufeffa,b\n1,2\n")
    assert TableFile(path).columns == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,a\n", "t.csv: column name 'a' occurs more than once; rename it."),
        ("a\n1,2\n", "t.csv: line 2 has 2 fields and the header 1; put quotes"),
        ("a,b,c\n1,2,3\n1,2,3,4\n", "t.csv: line 3 has 4 fields and the header 3; put quotes"),
        ("a,b\n1,2\n3,4\n1,2,3\n", "header 2; put quotes around .* separator, or name the sep"),
        ("sep=;,\na,b,c\n1,2,3\n", "header 2; .* separator, or remove the lines above the header"),
        ("Sales\n\na,b,c\n1,2,3\n", "line 3 .* header 1; .* the lines above the header"),
        ('a\n"1\n2\n', "t.csv is not a readable table .*; close the quote that is open"),
        ("", "t.csv is empty; give a header line and rows."),
    ],
)
def test_text_that_is_no_table_says_what_to_do(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        TableFile(tmp_path / "t.csv").frame()

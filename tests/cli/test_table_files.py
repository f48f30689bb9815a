"""Files of tables: separators, encodings, compression, labels and identifiers as written."""

import gzip
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.cli.table_files import (
    STANDARD_INPUT,
    ReadOptions,
    check_writable,
    read_table,
    suffix_of,
    write_table,
)
from tabicl_linear.errors import DataError

TABLE = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z,\n;\t"], "ü": [0.5, np.nan, 1e300]})


@pytest.mark.parametrize(
    "name", ["t.csv", "t.tsv", "t.csv.gz", "t.TSV.GZ", "t.parquet", "two.dots.csv"]
)
def test_what_is_written_is_read(tmp_path, name):
    write_table(TABLE, tmp_path / name)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), TABLE, check_dtype=False)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    compressed = (tmp_path / name).read_bytes().startswith(b"\x1f\x8b")
    assert compressed == name.lower().endswith(".gz")


@pytest.mark.parametrize("name", ["t.txt", "t.gz", "t.parquet.gz", "t", "t.csv.zip"])
def test_unknown_suffixes(name):
    with pytest.raises(DataError, match="unknown suffix"):
        suffix_of(Path(name))


def test_separator_and_encoding(tmp_path):
    path = tmp_path / "t.csv"
    TABLE.to_csv(path, index=False, sep=";", encoding="latin-1")
    with pytest.raises(DataError, match=r"not utf-8 text \(byte 0xfc\).*--encoding latin-1"):
        read_table(path, ReadOptions(sep=";"))
    read = read_table(path, ReadOptions(sep=";", encoding="latin-1"))
    pd.testing.assert_frame_equal(read, TABLE, check_dtype=False)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + b"a,b\n1,2\n")
    table = read_table(tmp_path / "t.csv", ReadOptions(as_text=("a",)))
    assert table.to_dict("list") == {"a": ["1"], "b": [2]}


@pytest.mark.parametrize("wrap", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_standard_input(monkeypatch, wrap):
    stream = SimpleNamespace(buffer=io.BytesIO(wrap(b"a\tb\n1\t2\n")))
    monkeypatch.setattr(sys, "stdin", stream)
    table = read_table(STANDARD_INPUT, ReadOptions(sep="\t"))
    assert table.to_dict("list") == {"a": [1], "b": [2]}


def test_text_columns_are_read_as_written(tmp_path):
    (tmp_path / "t.csv").write_text("id,x,y\n007,NA,NA\n1.0,,None\n,n/a,-\n")
    table = read_table(tmp_path / "t.csv", ReadOptions(as_text=("id", "y"), na_values=["-"]))
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
        (gzip.compress(b"a,b\n1,2\n")[:10] + b"\xff" * 20, "not a whole gzip file"),
        (b'a,b\n"1,2\n', "not a readable table"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_files_that_cannot_be_read(tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=message) as refusal:
        read_table(tmp_path / "t.csv")
    assert "\n" not in str(refusal.value)
    assert "t.csv" in str(refusal.value)


def test_text_of_another_encoding(tmp_path):
    (tmp_path / "t.csv").write_bytes("a\n1\n".encode("utf-16-le"))
    with pytest.raises(DataError, match=r"utf-16 text .*by --encoding"):
        read_table(tmp_path / "t.csv", ReadOptions(encoding="utf-16"))


def test_an_output_that_cannot_be_written_is_found_before(tmp_path):
    check_writable(tmp_path / "out.csv", ())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out.csv").write_text("old")
    check_writable(tmp_path / "out.csv", ())
    assert (tmp_path / "out.csv").read_text() == "old"
    with pytest.raises(DataError, match="File name too long; name another file"):
        check_writable(tmp_path / ("x" * 252 + ".csv"), ())

"""Files of tables that commands write."""

import numpy as np
import pandas as pd
import pytest

from tabicl_linear.cli.table_output import check_writable, table_writer, write_table
from tabicl_linear.errors import DataError
from tabicl_linear.estimator.rows.table_file import TableFile

TABLE = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z,\n;\t"], "ü": [0.5, np.nan, 1e300]})


@pytest.mark.parametrize(
    "name", ["t.csv", "t.tsv", "t.csv.gz", "t.TSV.GZ", "t.parquet", "two.dots.csv"]
)
def test_what_is_written_is_read(tmp_path, name):
    write_table(TABLE, tmp_path / name)
    pd.testing.assert_frame_equal(TableFile(tmp_path / name).frame(), TABLE, check_dtype=False)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    compressed = (tmp_path / name).read_bytes().startswith(b"\x1f\x8b")
    assert compressed == name.lower().endswith(".gz")


def test_an_output_that_cannot_be_written_is_found_before(tmp_path):
    check_writable(tmp_path / "out.csv", ())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out.csv").write_text("old")
    check_writable(tmp_path / "out.csv", ())
    assert (tmp_path / "out.csv").read_text() == "old"
    with pytest.raises(DataError, match="File name too long; name another file"):
        check_writable(tmp_path / ("x" * 252 + ".csv"), ())


@pytest.mark.parametrize("name", ["t.tsv", "t.csv.gz", "t.parquet"])
def test_pieces_are_the_whole(tmp_path, name):
    with table_writer(tmp_path / name) as write:
        write(TABLE[:1])
        write(TABLE[1:])
    assert TableFile(tmp_path / name).num_rows() == len(TABLE)
    (tmp_path / "whole").mkdir()
    write_table(TABLE, tmp_path / "whole" / name)
    read = [TableFile(folder / name).frame() for folder in (tmp_path, tmp_path / "whole")]
    pd.testing.assert_frame_equal(*read)
    if not name.endswith("parquet"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

"""A table comes back as it was written, or is refused in one line that names it."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fuzz import budget, flipped_bits

from tabicl_linear.errors import DamagedFile
from tabicl_linear.parquet import KEY, OPEN, SEAL, check_file, read_table, write_table

COLUMNS = {"fold": "whole", "score": "number", "good": "flag", "model": "text"}
FRAME = pd.DataFrame(
    {
        "fold": [0, 1, 2],
        "score": [0.5, np.nan, 1.0],
        "good": [True, False, True],
        # A cell may hold what the metadata hold.
        "model": ["a", "", (SEAL + OPEN).decode()],
    }
)


@pytest.fixture
def path(tmp_path):
    write_table(tmp_path / "a.parquet", FRAME, COLUMNS, metadata={"about": "a test"})
    return tmp_path / "a.parquet"


def is_taken(read, path):
    """Whether a file is read, or refused without its name."""
    try:
        read(path)
    except DamagedFile as error:
        return not str(error).startswith(f"{path} is damaged (")
    return True


def test_a_table_comes_back_as_it_was(path):
    pd.testing.assert_frame_equal(read_table(path, COLUMNS), FRAME)
    pd.testing.assert_frame_equal(read_table(path), FRAME)
    check_file(path)
    assert [p.name for p in path.parent.iterdir()] == ["a.parquet"]


def test_other_readers_take_it_and_see_the_metadata(path):
    pd.testing.assert_frame_equal(pd.read_parquet(path), FRAME)
    assert pq.read_schema(path).metadata[b"about"] == b"a test"
    metadata = pq.read_metadata(path).metadata
    assert metadata[KEY.encode()].startswith(SEAL)
    assert OPEN not in metadata[KEY.encode()]
    pq.read_table(path, page_checksum_verification=True)


def test_pages_have_checksums(path):
    """For readers that do not know the digest."""
    content = path.read_bytes()
    place = content.find(np.float64(0.5).tobytes())
    assert place > 0
    path.write_bytes(content[:place] + np.float64(0.25).tobytes() + content[place + 8 :])
    with pytest.raises(OSError, match=r"(?i)checksum|crc"):
        pq.read_table(path, page_checksum_verification=True)


def test_every_flipped_bit_is_noticed(path):
    content = path.read_bytes()
    lost = []
    for bit, damaged in flipped_bits(content, budget(2000)):
        path.write_bytes(damaged)
        lost += [bit] * (is_taken(read_table, path) or is_taken(check_file, path))
    assert lost == []


def test_cut_and_lengthened_files_are_noticed(path):
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedFile):
            read_table(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(DamagedFile, match="its digest is another"):
        read_table(path)


def test_files_of_other_writers_and_absent_ones_are_refused(tmp_path):
    FRAME.drop(columns="model").to_parquet(tmp_path / "b.parquet")
    with pytest.raises(DamagedFile, match=r"b\.parquet is damaged \(it has no digest\): mend it\."):
        read_table(tmp_path / "b.parquet", remedy="mend it")
    with pytest.raises(DamagedFile, match="cannot be read: No such file"):
        read_table(tmp_path / "c.parquet")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({**COLUMNS, "seconds": "number"}, "fold, score, good, model and not fold, score"),
        ({name: COLUMNS[name] for name in ("fold", "good", "model")}, "and not fold, good, model"),
        ({**COLUMNS, "score": "whole"}, "column score holds float64 and not whole"),
        ({**COLUMNS, "fold": "number"}, "column fold holds int64 and not number"),
        ({**COLUMNS, "fold": "flag"}, "column fold holds int64 and not flag"),
        ({**COLUMNS, "good": "text"}, "column good holds bool and not text"),
    ],
)
def test_other_columns_are_refused(path, columns, words):
    with pytest.raises(DamagedFile, match=words):
        read_table(path, columns)
    with pytest.raises(AssertionError, match=words):
        write_table(path.with_name("other.parquet"), FRAME, columns)
    assert not path.with_name("other.parquet").exists()


def test_texts_have_no_gaps(tmp_path):
    frame = pd.DataFrame({"model": ["a", None]})
    with pytest.raises(AssertionError, match="column model"):
        write_table(tmp_path / "a.parquet", frame, {"model": "text"})
    write_table(tmp_path / "a.parquet", frame)
    with pytest.raises(DamagedFile, match="column model"):
        read_table(tmp_path / "a.parquet", {"model": "text"})


def test_an_error_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(OSError, match="no"):
        write_table(path.parent / "no" / "a.parquet", FRAME)
    with pytest.raises(AssertionError):
        write_table(path, FRAME, {"fold": "whole"})
    assert path.read_bytes() == before

"""Life records in Parquet files are the same records."""

from pathlib import Path

import pytest

from muster.common.errors import ConfigError
from muster.common.life_record import (
    LifeDevice,
    LifeRound,
    LifeRow,
    life_record,
    read_life,
    write_life,
)

pytest.importorskip("pyarrow")

ROWS = [
    LifeRow(1, "a", "accept", None, 0, "folded", 1, 0, 0.1, 1e-7, 2.0, examples=3, x='{"load":1}'),
    LifeRow(1, "b", "decline", "offline"),
]


def test_a_record_in_parquet_is_the_record(tmp_path: Path) -> None:
    record = life_record("a test", "wall", [LifeDevice(client=c, group="g") for c in "ab"],
                         [LifeRound(ended_s=2.0, version=1)], ROWS)  # fmt: skip
    write_life(tmp_path / "life.parquet", record)
    write_life(tmp_path / "life.csv.gz", record)
    assert read_life(tmp_path / "life.parquet") == read_life(tmp_path / "life.csv.gz") == record


def test_other_tables_and_damaged_records_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow.parquet as pq  # type: ignore[import-not-found,import-untyped,unused-ignore]

    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"client": ["a"]}), path)
    with pytest.raises(ConfigError, match="found a Parquet file with client"):
        read_life(path)
    record = life_record("a test", "wall", [LifeDevice(client="a", group="g")], [LifeRound()], [])
    write_life(path, record._replace(rows=ROWS[:1]))
    with pytest.raises(ConfigError, match="the record is damaged"):
        read_life(path)
    path.write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match="expected a life record"):
        read_life(path)

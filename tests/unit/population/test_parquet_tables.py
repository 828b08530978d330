"""Tables of devices in Parquet files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muster.common.config import validate
from muster.common.file_tables import read_table
from muster.emulator.scenario.scenario import Scenario

pytest.importorskip("pyarrow")


def test_a_parquet_file_is_the_same_table_as_its_csv_file(tmp_path: Path) -> None:
    rows = {"client": ["a-0001", "a-0000"], "down_mbps": [0.1, 1e-7], "rtt_ms": [3, 4]}
    frame = pd.DataFrame(rows)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    frame.to_csv(tmp_path / "t.csv", index=False)
    tables = [read_table(str(tmp_path / name)) for name in ("t.parquet", "t.csv")]
    for table in tables:
        assert table.clients == {"a-0001": 0, "a-0000": 1}
        np.testing.assert_array_equal(table.numbers("down_mbps"), [0.1, 1e-7])
        np.testing.assert_array_equal(table.numbers("rtt_ms"), [3, 4])
    assert [table.place(1)[-6:] for table in tables] == [", row 2"[-6:], "line 3"]


def test_what_is_no_parquet_file_or_has_gaps_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_text("client,rtt_ms\n")
    with pytest.raises(ValueError, match=r"t\.parquet: expected a Parquet file, found"):
        read_table(str(path))
    pd.DataFrame({"rtt_ms": [1.0, None]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"t\.parquet, row 2.* in column 'rtt_ms'"):
        read_table(str(path)).numbers("rtt_ms")


def test_a_table_of_devices_in_parquet_gives_each_device_its_link(tmp_path: Path) -> None:
    path = tmp_path / "devices.parquet"
    pd.DataFrame({"down_mbps": [8.0, 2.0], "rtt_ms": [40, 300]}).to_parquet(path, index=False)
    values = {
        "name": "brought", "task": {"name": "linear", "dimension": 5}, "server": {"rounds": 2},
        "groups": [{"name": "g", "count": 2, "table": str(path)}],
    }  # fmt: skip
    given = validate(Scenario, values, "test")
    shapes = given.groups[0].link.shapes_of(given.seed, ["g-0000", "g-0001"], range(2))
    assert [(each.down_bps, each.rtt_s) for each in shapes] == [(8e6, 0.04), (2e6, 0.3)]

"""The table of devices, from its file to the devices."""

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from muster.common.errors import ConfigError
from muster.emulator.fleet.lives import by_group, members_of
from muster.emulator.scenario.device_table import COLUMNS, WHOSE
from muster.emulator.scenario.population import population
from muster.emulator.scenario.reading import named_files, read_scenario
from muster.emulator.scenario.scenario import Scenario

HEADER = "client,device,down_mbps,up_kbps,rtt_ms,loss,examples_per_s,time_zone_h,battery_mah,charge"
TABLE = f"""{HEADER},z_age
a-0001,Pixel 6,20,5000,40,0.01,50,1,4600,0.9,30
a-0000,Moto G,2,900,300,0,8,-3,3000,0.4,50
"""


def scenario(folder: Path, text: str | None = TABLE, **group: Any) -> Scenario:
    if text is not None:
        (folder / "devices.csv").write_text(text)
    table: dict[str, Any] = {"name": "a", "count": 2, "table": "devices.csv", **group}
    values = {"name": "table", "task": "linear", "server": {"rounds": 1}, "groups": [table]}
    (folder / "table.toml").write_text(tomli_w.dumps(values))
    return read_scenario(folder / "table.toml")


def members(read: Scenario) -> list[dict[str, Any]]:
    [(group, residents)] = by_group(read, population(read))
    return [member.model_dump() for member in members_of(read, group, residents)]


def test_every_column_reaches_its_device(tmp_path: Path) -> None:
    read = scenario(tmp_path)
    first, second = (resident.shape for resident in population(read))
    assert (first.down_bps, first.up_bps, first.rtt_s, first.loss) == (2e6, 9e5, 0.3, 0.0)
    assert (second.down_bps, second.up_bps, second.rtt_s, second.loss) == (20e6, 5e6, 0.04, 0.01)
    keys = "examples_per_s", "zone_h", "battery_mah", "charge", "z"
    assert [[member[key] for key in keys] for member in members(read)] == [
        [8.0, -3.0, 3000.0, 0.4, {"age": 50.0}],
        [50.0, 1.0, 4600.0, 0.9, {"age": 30.0}],
    ]


def test_a_scenario_names_the_file_and_not_its_values(tmp_path: Path) -> None:
    read = scenario(tmp_path, link={"profile": "3g"})
    text = read.to_toml()
    assert "5000" not in text
    (tmp_path / "again.toml").write_text(text)
    again = read_scenario(tmp_path / "again.toml")
    assert again == read
    assert again.to_toml() == text
    assert again.groups[0].link.jitter == 0.05  # what has no column is that of the profile
    assert named_files(tomllib.loads(text)).__next__() == tmp_path / "devices.csv"


def test_traces_that_a_table_names_bind_the_run_too(tmp_path: Path) -> None:
    (tmp_path / "fast").write_text("1\n2\n")
    read = scenario(tmp_path, "trace,offset_s\nfast,0\nfast,0.001\n")
    assert [each.shape.trace_start_s for each in population(read)] == [0.0, 0.001]
    assert tmp_path / "fast" in set(named_files(tomllib.loads(read.to_toml())))


def test_devices_draw_whole_rows_by_weight(tmp_path: Path) -> None:
    text = "device,weight,down_mbps,examples_per_s\nold,1,1,10\nnew,3,9,90\n"
    read = scenario(tmp_path, text, count=400, table={"path": "devices.csv", "rows": "drawn"})
    speeds = [member["examples_per_s"] for member in members(read)]
    assert speeds.count(90.0) == pytest.approx(300, abs=35)
    rates = [each.shape.down_bps for each in population(read)]
    assert rates == [speed * 1e5 for speed in speeds]


def test_one_table_can_serve_several_groups(tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text("group,down_mbps\nb,3\na,1\nb,4\na,2\n")
    groups = [{"name": name, "count": 2, "table": "devices.csv"} for name in "ab"]
    values = {"name": "table", "task": "linear", "server": {"rounds": 1}, "groups": groups}
    (tmp_path / "table.toml").write_text(tomli_w.dumps(values))
    found = population(read_scenario(tmp_path / "table.toml"))
    assert [each.shape.down_bps for each in found] == [1e6, 2e6, 3e6, 4e6]


def test_a_table_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    scenario(tmp_path, "down_mbps\n1\n2\n")
    (tmp_path / "devices.csv").write_text("down_mbps\n3\n4\n")
    os.utime(tmp_path / "devices.csv", ns=(1, 1))
    found = population(scenario(tmp_path, None))
    assert [each.shape.down_bps for each in found] == [3e6, 4e6]


@pytest.mark.parametrize(
    ("text", "group", "said"),
    [
        ("down\n1\n", {}, "the column 'down' lacks its unit; expected one of down_bps, down_kbps"),
        (
            "time_zone\n1\n",
            {},
            "the column 'time_zone' lacks its unit; expected one of time_zone_h",
        ),
        (
            "dwn_mbps\n1\n",
            {},
            r"unknown column 'dwn_mbps' \(did you mean 'down_mbps'\?\); expected",
        ),
        ("down_mbps\n1\n-1\n", {}, "devices.csv, line 3: expected a number from 0.001 to 1e"),
        ("down_mbps\n1\nnan\n", {}, "devices.csv, line 3: expected a number .* found 'nan'"),
        ("down_mbps\n1\nfast\n", {}, "devices.csv, line 3: expected a number .* found 'fast'"),
        ("rtt_ms,loss\n1,0\n2\n", {}, "devices.csv, line 3 has nothing in column 'loss'"),
        ("charge\n0.5\n50\n", {}, "devices.csv, line 3: expected a number from 0 to 1 in column"),
        ("client,loss\na-0000,0\na-0000,0\n", {}, "line 3: client 'a-0000' has more than one row"),
        ("client,loss\na-0000,0\n", {}, "devices.csv has no row of client 'a-0001'"),
        ("loss\n0\n", {}, "devices.csv has 1 rows, and no column 'client'; expected one for every"),
        ("group,loss\nb,0\nb,0\n", {}, "devices.csv has 0 rows of group 'a'"),
        ("examples_per_s\n9\n", {}, "device.examples_per_s: .* has 1 rows, and no column 'client'"),
        ("loss\n", {}, "devices.csv has no rows; expected one for each device"),
        (None, {}, r"groups\[0\].table: .*devices.csv cannot be read: .*No such file"),
        ("loss,weight\n0,1\n0,2\n", {}, "has a column 'weight', which decides how often"),
        (
            "client,loss\na-0000,0\n",
            {"table": {"path": "devices.csv", "rows": "drawn"}},
            "has a column 'client', but rows = 'drawn' gives rows to any device",
        ),
        (
            "rtt_ms\n1\n2\n",
            {"link": {"rtt": "20 ms"}},
            "link.rtt is set here, and by the column 'rtt_ms' of the table; leave out one of them",
        ),
        (
            "loss\n0\n0\n",
            {"table": {"path": "devices.csv", "rows": "some"}},
            "table.rows: expected",
        ),
        ("loss\n0\n0\n", {"table": 3}, "table: expected .*, found 3"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_what_was_expected(
    tmp_path: Path, text: str | None, group: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        population(scenario(tmp_path, text, **group))
    assert "groups[0]" in str(refused.value)


def test_the_page_names_every_column() -> None:
    page = Path("docs/devices.md").read_text()
    missing = [name for name in (*COLUMNS, *WHOSE) if f"`{name}`" not in page]
    assert not missing

"""Public logs of availability become life records, from which scenarios are played."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.client.availability.traces import AvailabilityTrace
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.life_record import read_life, write_life
from muster.emulator.scenario.scenario import Scenario
from muster.laboratory.life_import import import_life, leaves
from muster.simulation.whole_run import simulate_run

DATA = Path(__file__).parents[2] / "data"


def fedscale(path: Path, **changes: Any) -> Path:
    one = {"active": [0, 300], "inactive": [150, 400], "finish_time": 600, "model": "x"}
    other = {"active": [100], "inactive": [600], "finish_time": 600}
    path.write_bytes(pickle.dumps({7: {**one, **changes}, 9: other}))
    return path


def test_a_device_of_fedscale_counts_when_it_is_there_for_a_whole_round(tmp_path: Path) -> None:
    record = import_life(fedscale(tmp_path / "log"), rounds=7, round_s=100.0, group="phones")
    answers: dict[str, list[str]] = {}
    for row in record.rows:
        answers.setdefault(row.client, []).append(row.answer)
        assert (row.counted == row.round) == (row.answer == "accept")
    # The traces begin again after 600 s.
    assert answers == {
        "phones-0000": ["accept", "abort", "decline", "accept", "decline", "decline", "accept"],
        "phones-0001": ["decline", *["accept"] * 5, "decline"],
    }
    assert "FedScale's client_behave_trace, log with SHA-256" in record.header.source
    assert len(import_life(tmp_path / "log", rounds=1, round_s=1.0, devices=1).rows) == 1


def test_a_phone_of_flash_counts_while_it_charges_in_a_wifi_with_its_screen_off() -> None:
    record = import_life(DATA / "flash-states.json", rounds=48, round_s=3600.0)
    counted = [row.round for row in record.rows if row.client == "devices-0000" and row.counted]
    # It charges from 22 h of the first day on, is in a Wi-Fi from 18 h on, and its screen is off
    # from 7:30 on; so it is there from hour 22 to hour 31, and when the log begins again.
    assert counted[0] <= 23 <= counted[-1]
    assert all(22 < round <= 31 or round <= 7 or round > 46 for round in counted)


def test_a_scenario_is_played_from_an_imported_record(tmp_path: Path) -> None:
    write_life(tmp_path / "life.csv.gz", import_life(fedscale(tmp_path / "log"), rounds=4,
                                                     round_s=100.0, group="phones"))  # fmt: skip
    values = {
        "name": "imported",
        "task": {"name": "linear", "dimension": 3},
        "server": {"rounds": 4},
        "life": {"record": str(tmp_path / "life.csv.gz"), "grade": "life"},
        "groups": [{"name": "phones", "count": 2}],
    }
    assert simulate_run(validate(Scenario, values, "imported"), tmp_path / "run") == "completed"
    summary = json.loads((tmp_path / "run" / "summary.json").read_bytes())
    assert summary["rounds"] == 4


@given(
    st.lists(st.integers(1, 29), unique=True, max_size=5),
    st.booleans(),
    st.booleans(),
    st.integers(0, 90),
    st.integers(1, 70),
)
def test_a_traceleaves_if_it_is_off_at_some_instant_of_the_round(
    toggles: list[int], start: bool, repeats: bool, opened_s: int, lasts_s: int
) -> None:
    trace = AvailabilityTrace(start, tuple(sorted(map(float, toggles))), 30.0 if repeats else None)
    if trace.on(opened_s):
        off = any(not trace.on(second) for second in range(opened_s, opened_s + lasts_s))
        assert leaves(trace, opened_s, opened_s + lasts_s) == off


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.txt", b"time rate", "expected a known log of availability"),
        ("states.json", b'{"a": {"messages": "yesterday"}}', "expected a date and time, a tab"),
        ("table.csv", b"device,start,end\na,5,3\n", "expected a start of at least 0"),
        ("log", pickle.dumps({1: {"active": [3], "inactive": []}}), "as many inactive as active"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        import_life(tmp_path / name, rounds=1, round_s=1.0)


def test_options_that_fit_no_log_are_refused(tmp_path: Path) -> None:
    log = fedscale(tmp_path / "log")
    with pytest.raises(ConfigError, match="--devices: expected 1 to 2"):
        import_life(log, rounds=1, round_s=1.0, devices=3)
    with pytest.raises(ConfigError, match="--format: expected one of fedscale, flash, trace"):
        import_life(log, rounds=1, round_s=1.0, form="csv")
    with pytest.raises(ConfigError, match="expected a log of availability"):
        import_life(tmp_path / "none", rounds=1, round_s=1.0)
    with pytest.raises(ConfigError, match=r"Parquet needs pyarrow|expected a life record"):
        read_life(tmp_path / "none.parquet")

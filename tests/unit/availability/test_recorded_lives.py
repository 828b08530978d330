"""Logs of when devices were available, and of what they did."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from muster.client.availability import DeviceBatch
from muster.client.availability.trace import Replay
from muster.client.availability.traces import AvailabilityTrace, read_traces
from muster.client.life.connectivity import CELLULAR, WIFI
from muster.client.life.device_settings import DeviceSettings
from muster.client.life.state_logs import read_state_logs
from muster.client.life.surroundings import DeviceSurroundings
from muster.common.errors import ConfigError

MakeCast = Callable[..., DeviceBatch]

DATA = Path(__file__).parents[2] / "data"
INTERVALS, STATES = DATA / "availability-intervals.csv", DATA / "flash-states.json"
H = 3600.0


def test_intervals_are_the_times_at_which_a_device_is_available(tmp_path: Path) -> None:
    expected = {
        "p1": AvailabilityTrace(True, (3600.0, 7200.0, 10800.0)),
        "p2": AvailabilityTrace(False, (1800.0, 5400.0)),
    }
    assert read_traces(INTERVALS) == expected
    packed = tmp_path / "intervals.csv.gz"
    packed.write_bytes(gzip.compress(INTERVALS.read_bytes()))
    assert read_traces(packed) == expected


def test_comments_and_blank_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("# from lab\nclient,start,period_s,toggles\n\na,1,86400,3600;7200\n\n")
    assert read_traces(path) == {"a": AvailabilityTrace(True, (3600.0, 7200.0), 86400.0)}
    path.write_text("# from lab\nclient,start,period_s,toggles\n\na,1,86400,x\n")
    with pytest.raises(ConfigError, match="line 4"):
        read_traces(path)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("p1,x,2", "line 3: expected seconds"),
        ("p1,5,nan", "line 3: expected a start"),
        ("p1,-5,2", "line 3: expected a start of at least 0 before its end"),
        ("p1,5,5", "line 3: expected a start"),
        ("p1,2024-01-01,9", "line 3: expected seconds .* found '2024-01-01'; convert dates"),
        ("p1,5", "line 3: expected a device, a start and an end"),
        ("p1,50,70", "line 3: .* after 100 as its last end"),
        ("p1,1583020800,1583024400", "looks like seconds since 1970; subtract the first instant"),
        ("p1,1583020800000,1583024400000", "milliseconds since 1970; .* divide by 1,000"),
        ("p1,1583020800000000,1583024400000000", "microseconds since 1970; .* 1,000,000"),
    ],
)
def test_wrong_intervals_are_refused_with_their_line(tmp_path: Path, row: str, says: str) -> None:
    path = tmp_path / "intervals.csv"
    path.write_text(f"device_id,start,end\np1,10,100\n{row}\n")
    with pytest.raises(ConfigError, match=says) as caught:
        read_traces(path)
    assert str(path) in str(caught.value)


def test_toggles_since_1970_are_refused_with_the_conversion(tmp_path: Path) -> None:
    path = tmp_path / "epoch.csv"
    path.write_text("client,start,period_s,toggles\na,1,,1583020800 1583024400\n")
    with pytest.raises(ConfigError, match=r"line 2: .* since 1970; subtract the first instant"):
        read_traces(path)


def test_traces_can_repeat_and_be_drawn(make_cast: MakeCast) -> None:
    cast = make_cast(200, step_s=600.0)
    drawn = Replay(kind="trace", file=str(INTERVALS), assign="random", period_s=6 * H)
    on = drawn.process(cast).on(cast.scene(0))
    assert 70 < on.sum() < 130  # of the two traces, one begins available
    again = drawn.process(make_cast(200, step_s=600.0))
    np.testing.assert_array_equal(again.on(cast.scene(36)), on)  # a period later
    in_turn = Replay(kind="trace", file=str(INTERVALS)).process(cast).on(cast.scene(0))
    assert in_turn.tolist() == [True, False] * 100


def test_logs_of_states_are_read() -> None:
    logs = read_state_logs(STATES)
    a = logs["user-a"]
    assert a.charging == AvailabilityTrace(True, (7 * H, 22 * H, 31 * H), 48 * H)
    assert a.wifi == AvailabilityTrace(True, (8 * H, 18 * H), 48 * H)
    assert a.idle == AvailabilityTrace(True, (6.5 * H, 7.5 * H, 31 * H + 600), 48 * H)
    assert logs["user-b"].wifi == AvailabilityTrace(True, (21 * H,), 24 * H)


def test_devices_do_what_was_recorded_at_the_hours_of_the_recording(make_cast: MakeCast) -> None:
    recorded = {"file": str(STATES)}
    device = DeviceSettings.model_validate({"profile": "phone", "recorded": recorded})
    cast = make_cast(2, step_s=600.0, start_h=6.0)
    around = DeviceSurroundings(cast, device)
    for hour, charging, wifi, idle in (
        (6.6, [True, False], [True, True], [False, True]),
        (9.5, [False, False], [False, True], [True, False]),
        (22.5, [True, False], [True, False], [True, True]),
        (26.0, [True, True], [True, True], [True, True]),  # user-b begins again after a day
    ):
        times = np.full(2, (hour - 6.0) * H)
        assert around.plugged(times).tolist() == charging, hour
        assert around.network(times).tolist() == [WIFI if on else CELLULAR for on in wifi], hour
        assert around.idle(times).tolist() == idle, hour


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ("", "expected at least one message"),
        ("yesterday\twifi", "message 1: expected a date and time, a tab and an event"),
        ("1583020800\twifi", "message 1: expected a date and time"),
        ("2020-01-02 06:30:00\tdancing", "message 1: expected one of .* found 'dancing'"),
        (
            "2020-01-02 06:30:00\twifi\n2020-01-02 06:00:00\t4g",
            "message 2: expected an instant that is not before",
        ),
    ],
)
def test_wrong_logs_are_refused(tmp_path: Path, messages: str, says: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"a": {"messages": messages}}))
    with pytest.raises(ValueError, match=says) as caught:
        read_state_logs(path)
    assert str(path) in str(caught.value)


def test_recorded_states_need_a_battery_and_a_file() -> None:
    with pytest.raises(ValueError, match="recorded: expected a device with a battery"):
        DeviceSettings.model_validate({"recorded": {"file": str(STATES)}})
    with pytest.raises(ValueError, match="cannot be read"):
        DeviceSettings.model_validate({"profile": "phone", "recorded": {"file": "nowhere.json"}})

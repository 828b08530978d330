from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from muster.client.availability import DeviceBatch
from muster.client.availability.trace import Replay
from muster.client.availability.traces import AvailabilityTrace, read_traces, write_traces
from muster.common.errors import ConfigError

MakeCast = Callable[..., DeviceBatch]

TRACES = {
    "b, the first": AvailabilityTrace(True, (10.0, 25.5, 70.0), 100.0),
    "phones-2": AvailabilityTrace(False, (30.0,)),
    "never": AvailabilityTrace(False, (), 86400.0),
}


def replay(path: Path) -> Replay:
    return Replay(kind="trace", file=str(path))


@pytest.mark.parametrize("name", ["traces.csv", "traces.json"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    write_traces(tmp_path / name, TRACES)
    read = read_traces(tmp_path / name)
    assert read == TRACES
    assert list(read) == list(TRACES)


def test_a_trace_toggles_at_its_instants_and_begins_again_after_its_period() -> None:
    trace = TRACES["b, the first"]
    instants = [0, 9.9, 10, 25.4, 25.5, 69, 70, 99.9]
    states = [True, True, False, False, True, True, False, False]
    assert [trace.on(instant) for instant in instants] == states
    assert [trace.on(instant + 700) for instant in instants] == states


def test_the_last_state_of_a_trace_without_a_period_lasts() -> None:
    assert [TRACES["phones-2"].on(instant) for instant in (0, 29, 30, 1e9)] == [0, 0, 1, 1]


def test_a_group_replays_what_its_traces_say_at_every_instant(
    tmp_path: Path, make_cast: MakeCast
) -> None:
    file = tmp_path / "traces.csv"
    write_traces(file, TRACES)
    cast = make_cast(5, step_s=7.5)
    process = replay(file).process(cast)
    # By position modulo three, but phones-2 by its own name.
    own = [TRACES[name] for name in ("b, the first", *["phones-2"] * 2, "b, the first", "phones-2")]
    for step in range(200):
        scene = cast.scene(step)
        expected = [trace.on(scene.time_s) for trace in own]
        np.testing.assert_array_equal(process.on(scene), expected)
        np.testing.assert_array_equal(process.chance(scene), np.array(expected, dtype=float))
        until_s = scene.time_s + np.array([0.1, 22.5, 40.0, 700.0, 3.0])
        expected = [trace.on(until) for trace, until in zip(own, until_s, strict=True)]
        np.testing.assert_array_equal(process.still_on(scene, until_s), expected)


def test_a_device_takes_the_trace_of_its_own_name(tmp_path: Path, make_cast: MakeCast) -> None:
    file = tmp_path / "traces.csv"
    write_traces(
        file, {"phones-1": AvailabilityTrace(True, ()), "other": AvailabilityTrace(False, ())}
    )
    cast = make_cast(4)
    # Position 0 takes the first trace, 1 its own, 2 the first again, 3 the second.
    np.testing.assert_array_equal(replay(file).process(cast).on(cast.scene(0)), [1, 1, 1, 0])


def test_a_file_that_was_changed_is_read_again(tmp_path: Path, make_cast: MakeCast) -> None:
    file, cast = tmp_path / "traces.csv", make_cast(1)
    for start in (True, False):
        write_traces(file, {"one": AvailabilityTrace(start, ())})
        assert replay(file).process(cast).on(cast.scene(0))[0] == start


HEAD = "client,start,period_s,toggles\n"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (
            "client,toggles\n",
            1,
            "expected the header client,start,period_s,toggles or device,start,end, found client",
        ),
        (HEAD + "a,1,,5 6\nb,1,,9 7\n", 3, "found 9.0 and then 7.0"),
        (HEAD + "a,1,,5 5\n", 2, "strictly ascending"),
        (HEAD + "a,1,,0 5\n", 2, "toggles of > 0 seconds"),
        (HEAD + "a,1,100,5 100\n", 2, "before the end of the period"),
        (HEAD + "a,1,,5 nan\n", 2, "found 5.0 and then nan"),
        (HEAD + "a,1,,5 inf\n", 2, "found inf and then inf"),
        (HEAD + "a,1,,5 x\n", 2, "expected seconds"),
        (HEAD + "a,1,0,\n", 2, "expected a period of > 0 seconds, found 0.0"),
        (HEAD + "a,1,inf,\n", 2, "expected a period of > 0 seconds, found inf"),
        (HEAD + "a,yes,,5\n", 2, "expected start to be 0 or 1, found 'yes'"),
        (HEAD + "a,1,5\n", 2, "expected 4 columns, found 3"),
        (HEAD + "a,1,,5\na,0,,5\n", 3, "'a' has a trace already"),
    ],
)
def test_a_bad_csv_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, what: str
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_traces(file)
    assert str(refused.value).startswith(f"{file}, line {line}: ")
    assert what in str(refused.value)
    with pytest.raises(ValueError, match=f"line {line}"):
        replay(file).check("phones", 1, 1.0)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"a": {\n"start": tru}}', "line 2: Expecting value"),
        ("[]", "expected an object of clients, found list"),
        ('{"a": 5}', "client 'a': expected start, toggles and period_s, found 5"),
        ('{"a": {"start": 1, "toggles": [], "period_s": null}}', "start: expected a valid boolean"),
        ('{"a": {"start": true, "toggles": ["5"], "period_s": null}}', "toggles[0]"),
        ('{"a": {"start": true, "toggles": [NaN], "period_s": null}}', "finite"),
        ('{"a": {"start": true, "toggles": [9, 7], "period_s": null}}', "client 'a': expected tog"),
        ('{"a": {"start": true, "toggle": [], "period_s": 1}}', "did you mean 'toggles'?"),
        (
            '{"a": {"start": true, "toggles": [], "period_s": 1}, "a": {}}',
            "'a' is in one object twice",
        ),
        ("{}", "has no traces"),
    ],
)
def test_a_bad_json_is_refused_with_the_client(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_traces(file)
    assert what in str(refused.value)


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"neither \.csv nor \.json"):
        read_traces(tmp_path / "traces.pkl")
    with pytest.raises(ConfigError, match="No such file"):
        read_traces(tmp_path / "traces.csv")
    (tmp_path / "latin.csv").write_bytes(b"client\xff")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        read_traces(tmp_path / "latin.csv")
    (tmp_path / "empty.csv").write_text(HEAD)
    with pytest.raises(ConfigError, match="has no traces"):
        read_traces(tmp_path / "empty.csv")

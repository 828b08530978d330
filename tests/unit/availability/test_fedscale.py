import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.client.availability.traces import AvailabilityTrace, read_traces, write_traces
from muster.common.errors import ConfigError
from muster.emulator.fleet.fedscale import import_fedscale

CLIENT: dict[str, Any] = {
    "duration": 211625,
    "active": [12788, 100044, 188992, 442240],
    "inactive": [65881, 133574, 208292, 475099],
    "finish_time": 518400,
    "model": "CPH1801",
}


def pickled(path: Path, found: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(found, protocol))
    return path


def changed(**entries: Any) -> dict[int, dict[str, Any]]:
    return {1: {**CLIENT, **entries}}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_trace_replays_to_the_same_intervals(tmp_path: Path, protocol: int) -> None:
    [trace] = import_fedscale(pickled(tmp_path / "traces", {7: CLIENT}, protocol)).values()
    intervals = list(zip(CLIENT["active"], CLIENT["inactive"], strict=True))
    for instant in range(0, 2 * 518400, 997):
        within = any(begin <= instant % 518400 < end for begin, end in intervals)
        assert trace.on(instant) == within
    edges = [edge for interval in intervals for edge in interval]
    assert trace == AvailabilityTrace(False, tuple(map(float, edges)), 518400.0)


def test_clients_keep_their_names_and_their_order_also_in_muster_files(tmp_path: Path) -> None:
    clients = {12: CLIENT, 3: {**CLIENT, "active": [], "inactive": []}, "x": CLIENT}
    traces = import_fedscale(pickled(tmp_path / "traces", clients))
    assert list(traces) == ["12", "3", "x"]
    assert traces["3"] == AvailabilityTrace(False, (), 518400.0)
    write_traces(tmp_path / "traces.csv", traces)
    assert read_traces(tmp_path / "traces.csv") == traces


@pytest.mark.parametrize(
    ("active", "inactive", "expected"),
    [
        ([0, 50], [10, 100], AvailabilityTrace(True, (10, 50), 100)),
        ([0], [100], AvailabilityTrace(True, (), 100)),
        ([10, 20], [20, 30], AvailabilityTrace(False, (10, 30), 100)),
        ([10, 40], [10, 60], AvailabilityTrace(False, (40, 60), 100)),
        ([10, 20, 20], [20, 20, 30], AvailabilityTrace(False, (10, 30), 100)),
    ],
    ids=["both ends", "always", "joined", "empty", "joined by an empty one"],
)
def test_intervals_at_the_ends_and_side_by_side_become_toggles(
    tmp_path: Path, active: list[int], inactive: list[int], expected: AvailabilityTrace
) -> None:
    entry = changed(active=active, inactive=inactive, finish_time=100)
    assert import_fedscale(pickled(tmp_path / "traces", entry)) == {"1": expected}


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_nothing_ran(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "ran"
    file = pickled(tmp_path / "traces", changed(model=Malicious(marker)), protocol)
    with pytest.raises(ConfigError, match=r"found the name \w+\.system; no code of"):
        import_fedscale(file)
    assert not marker.exists()
    pickle.loads(file.read_bytes())
    assert marker.exists(), "the file would have run"


@pytest.mark.parametrize("found", [OrderedDict(a=1), np.float64(1), Path("x")], ids=repr)
def test_even_a_harmless_name_is_refused(tmp_path: Path, found: object) -> None:
    with pytest.raises(ConfigError, match="found the name"):
        import_fedscale(pickled(tmp_path / "traces", found))


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_traces_that_need_no_import_are_sent_where_they_belong(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"traces{suffix}"
    path.write_text("client,start\n")
    with pytest.raises(ConfigError, match=f"found a {suffix} file.*kind = .trace., file = .traces"):
        import_fedscale(path)


@pytest.mark.parametrize(
    "body",
    [b"", b"client,start\n", pickle.dumps({1: CLIENT})[:-9], b"Pa reference\n.", b"\x82\x01."],
    ids=["empty", "text", "cut off", "persistent", "extension"],
)
def test_what_is_no_plain_pickle_is_refused(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "traces").write_bytes(body)
    with pytest.raises(ConfigError, match="expected a pickle of only dicts, lists, numbers"):
        import_fedscale(tmp_path / "traces")


@pytest.mark.parametrize(
    ("found", "what"),
    [
        ([], "expected FedScale's traces by client, found list"),
        ({}, "found nothing"),
        ({1.5: CLIENT}, "found 1.5"),
        ({1: CLIENT, "1": CLIENT}, "once, found '1'"),
        ({1: []}, "client 1: expected a dict, found list"),
        ({1: {}}, "expected active to be a list of seconds, found nothing"),
        (changed(active=(1, 2)), "expected active to be a list of seconds, found tuple"),
        (changed(active=[1, 2, 3, "4"]), "expected active to be finite seconds, found '4'"),
        (changed(inactive=[1, 2, 3, True]), "expected inactive to be finite seconds, found True"),
        (changed(inactive=[1, 2, 3, float("nan")]), "found nan"),
        (changed(finish_time=None), "expected finish_time to be finite seconds, found None"),
        (changed(finish_time=470000), "found 475099 after 442240"),
        (changed(active=[1, 2, 3]), "found 3 active and 4 inactive"),
        (changed(active=[-1, 100044, 188992, 442240]), "found -1 after 0"),
        (changed(active=[70000, 100044, 188992, 442240]), "found 65881 after 70000"),
        (changed(active=[], inactive=[], finish_time=0), "a period of > 0 seconds"),
    ],
)
def test_traces_that_make_no_sense_are_refused(tmp_path: Path, found: object, what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        import_fedscale(pickled(tmp_path / "traces", found))
    assert what in str(refused.value)

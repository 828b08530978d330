"""What the settings of shared links refuse, and the model that they become."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.lines import LinkModel
from muster.common.shared_lines import BegunWork, SharedLine
from muster.emulator.fleet.packs import packs_by_gateway
from muster.emulator.gateway.rates import rate_of_limit
from muster.emulator.launch.gateway_configs import gateways_of
from muster.emulator.links.shared import SharedLink
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.server.coordination.shared_links import SharedLinkModel
from muster.server.fleet.devices import EnrolledDevice
from muster.server.rounds.cohort import WorkTime

RECORDING = "seconds,down Mbit/s\n0,8\n1,2\n2,2\n3,0\n4,8\n"


@pytest.fixture
def recording(tmp_path: Path) -> str:
    path = tmp_path / "cell.csv"
    path.write_text(RECORDING)
    return str(path)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"trace": "/nowhere.csv"}, "expected the file of one recording"),
        ({"cross_traffic": [{"up": "1 Mbit/s"}]}, "found no limit up"),
        ({"up": "2 Mbit/s", "cross_traffic": [{}]}, "expected a rate `down` or `up`"),
        (
            {"up": "2 Mbit/s", "cross_traffic": [{"up": "1 Mbit/s", "on": "2 s"}]},
            "off: expected both `on` and `off`",
        ),
        (
            {"up": "2 Mbit/s", "cross_traffic": [{"up": "3 Mbit/s"}]},
            "up: cross traffic leaves nothing of the link",
        ),
        (
            {"up": "2 Mbit/s", "cross_traffic": [{"up": "1999.5 kbit/s"}]},
            "500 bit/s are left in the mean, expected at least 1000 bit/s",
        ),
        ({"queue_up": "64 KiB"}, "queue_up: expected a rate `up` or `trace_up`"),
        (
            {"up": "2 Mbit/s", "queue_up": "64 KiB", "cells": {"a": {"up": "1 Mbit/s"}}},
            "a link with cells has no queue of all",
        ),
        ({"up": "2 Mbit/s", "trace_start": "9 s"}, "trace_start: expected a recording"),
        ({"cells": {"a": {"cross_traffic": [{"up": "1 Mbit/s"}]}}}, "found no limit up"),
    ],
)
def test_what_makes_no_sense_is_refused(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SharedLink.model_validate(table)


def test_a_recording_of_one_direction_is_refused_for_the_other(recording: str) -> None:
    with pytest.raises(ValidationError, match=r"trace_up: .* has rates down only"):
        SharedLink.model_validate({"trace_up": recording})


def test_a_recorded_link_divides_its_rate_among_the_devices(recording: str) -> None:
    table = {"trace": recording, "cells": {"a": {"trace": recording}}, "up": "1 Mbit/s"}
    line = SharedLink.model_validate(table).line(7, "valley")
    assert line.down_bps == pytest.approx(4e6)
    assert (line.up_bps, line.up_traces) == (1e6, ())
    alone = line.least(LinkModel(cell="a"), 1)
    assert alone.down_bps == pytest.approx(4e6)
    assert alone.gap_s == pytest.approx(1.0)
    assert line.parts[1].trace_files() == {recording}


def test_a_recording_begins_where_the_scenario_says(recording: str) -> None:
    tables = [
        {"trace": recording, **more}
        for more in ({}, {"trace_start": "3 s"}, {"trace_start": "random"})
    ]
    lines = [SharedLink.model_validate(each).line(7, "valley") for each in tables]
    [begin], [later], [drawn] = (line.down_traces for line in lines)
    assert (begin.start_s, later.start_s) == (0.0, 3.0)
    assert 0 < drawn.start_s < 5
    [other] = SharedLink.model_validate(tables[2]).line(7, "hill").down_traces
    assert other.start_s != drawn.start_s
    # 8 Mbit/s in the first second; from second 3 on nothing for a second, then 8 Mbit/s.
    gateways = [rate_of_limit(line.limit("down")) for line in lines[:2]]
    assert [8 * rate.capacity(0.0, 1.5) for rate in gateways] == pytest.approx([9e6, 4e6])
    seconds = [LinkModel(down_traces=(each,), down_bps=4e6).down_s(1e6) for each in (begin, later)]
    assert seconds == pytest.approx([1.0, 2.0])


def test_turns_over_a_recorded_link_follow_one_another(tmp_path: Path) -> None:
    path = tmp_path / "fades.csv"
    path.write_text("seconds,up Mbit/s\n0,8\n10,1\n1000,8\n")
    table = {"trace_up": str(path), "slots": 1}
    line, own = SharedLink.model_validate(table).line(7, "valley"), LinkModel()
    extra_s = [
        line.extra_s(own, 0, 5e6, rank, 3, BegunWork(0.0, 0.0), {}) for rank in range(3)
    ]  # 5 s each at 8 Mbit/s, and 40 s for the third, at 1 Mbit/s
    assert extra_s == pytest.approx([5.0, 10.0, 50.0])


def test_messages_wait_in_the_queues_of_all_links_on_their_way() -> None:
    table = {"up": "1 Mbit/s", "queue_up": "1 MB"}
    shared = SharedLink.model_validate(table).line(7, "valley")
    own = LinkModel(up_bps=8e6, queue_up_bytes=250_000)
    assert own.queue_s == pytest.approx(0.25)
    # Two devices: half of the rate for the own queue, and the whole of it for that of all.
    assert shared.least(own, 2).queue_s == pytest.approx(4.0 + 8.0)
    assert shared.least(LinkModel(queue_up_bytes=250_000), 2).queue_s == pytest.approx(12.0)


def test_cross_traffic_is_drawn_from_the_seed_and_the_name() -> None:
    load = {"up": "1 Mbit/s", "down": "2 Mbit/s", "on": "2 s", "off": "3 s"}
    link = SharedLink.model_validate(
        {"up": "4 Mbit/s", "down": "8 Mbit/s", "cross_traffic": [load]}
    )
    means = [
        link.line(seed, name).up_bps for seed, name in ((7, "a"), (7, "a"), (8, "a"), (7, "b"))
    ]
    assert means[0] == means[1]
    assert len(set(means)) == 3
    line = link.line(7, "a")
    up, down = line.up_traces[0].whole(), line.down_traces[0].whole()
    assert up.instants.tolist() == down.instants.tolist()  # both are on at the same times
    assert up.mean_bps == pytest.approx(3.6e6, rel=0.05)


# --- links of several groups ---------------------------------------------------------------------

DEVICES = {"count": 2, "link": {"rtt": "10 ms"}}


def scenario(*groups: dict[str, Any]) -> Scenario:
    values = {"name": "s", "task": "linear", "server": {"rounds": 1}, "groups": list(groups)}
    return validate(Scenario, values, "test")


def test_groups_that_name_a_link_share_it_and_its_gateway(tmp_path: Path) -> None:
    link = {"name": "region", "up": "2 Mbit/s", "cross_traffic": [{"up": "500 kbit/s"}]}
    found = scenario(
        {"name": "a", **DEVICES, "shared_link": {"name": "region"}},
        {"name": "b", **DEVICES, "shared_link": link},
        {"name": "c", **DEVICES},
    )
    a, b, _ = found.groups
    assert a.shared_line(1) == b.shared_line(1)
    assert a.shared_line(1).up_bps == pytest.approx(1.5e6)
    again = validate(Scenario, tomllib.loads(found.to_toml()), "again")
    assert again == found
    gateways = list(gateways_of(found, population(found), tmp_path, "secrets"))
    clients = {each.group: [device.client for device in each.devices] for each in gateways}
    assert clients == {
        "region": ["a-0000", "a-0001", "b-0000", "b-0001"],
        "c": ["c-0000", "c-0001"],
    }
    assert list(packs_by_gateway(found, population(found))["region"]) == clients["region"]


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ({"name": "r"}, {"name": "r"}, "no group describes the shared link 'r'"),
        (
            {"name": "r", "up": "1 Mbit/s"},
            {"name": "r", "up": "2 Mbit/s"},
            "groups 'a' and 'b' both describe the shared link 'r', differently",
        ),
        ({"name": "b", "up": "1 Mbit/s"}, {}, "has the name of a group"),
        ({"name": "r", "slots": 2}, {"name": "r"}, "a link of several groups has no slots"),
        ({"name": "r/x", "up": "1 Mbit/s"}, {}, "groups[0].shared_link.name"),
    ],
)
def test_links_of_several_groups_that_make_no_sense_are_refused(
    one: dict[str, Any], other: dict[str, Any], says: str
) -> None:
    groups = {"name": "a", **DEVICES, "shared_link": one}, {"name": "b", **DEVICES}
    with pytest.raises(ConfigError) as refused:
        scenario(groups[0], {**groups[1], "shared_link": other} if other else groups[1])
    assert says in str(refused.value)


def test_devices_of_all_groups_divide_the_rate_and_each_has_its_own_updates() -> None:
    line = SharedLine(name="region", up_bps=8e6)
    fleet = {
        "a": EnrolledDevice("a", "phones", 0, 5),
        "b": EnrolledDevice("b", "sensors", 1, 5),
        "c": EnrolledDevice("c", "office", 2, 5),
    }
    sizes = {"phones": (0.0, 1e6), "sensors": (0.0, 2e6), "office": (0.0, 1e6)}
    shared = {"phones": line, "sensors": line, "office": SharedLine(up_bps=8e6)}
    model = SharedLinkModel(shared, fleet, 7, sizes)
    alone = {client: WorkTime(1, 0.0, 0.0, 0.0) for client in fleet}
    times = model.sharing_of(1)(alone)
    assert {client: time.modelled_s for client, time in times.items()} == pytest.approx(
        {"a": 2.0, "b": 4.0, "c": 1.0}
    )

"""The state of a fleet, from made-up events and rows."""

from typing import Any

import pytest

from muster.emulator.live.fleet_state import FleetState, LedgerRows, RoundFacts
from muster.emulator.live.page_state import columns, sections
from muster.emulator.live.round_digest import DeviceAnswer, DeviceUpdate
from muster.emulator.live.run_setup import GroupSetup, RunSetup
from muster.emulator.records.shared_links import CellPlace, LinkPlace

CLIENTS = ("near-0000", "near-0001", "far-0000")


def setup(outlives_round: bool = False) -> RunSetup:
    groups = (GroupSetup("near", 2, 0), GroupSetup("far", 1, 2))
    return RunSetup("made-up", "run", "wall", outlives_round, 60.0, groups, CLIENTS)


def event(name: str, at: float = 100.0, **fields: Any) -> dict[str, Any]:
    return {"event": name, "at": at, "role": "server", "incarnation": 1, **fields}


def opened(round: int, at: float = 100.0, called: int = 3) -> dict[str, Any]:
    return event("round_opened", at, round=round, base_version=0, called=called, scenario_s=0.0)


def received(client: str, at: float = 100.0, round: int = 1) -> dict[str, Any]:
    return event("received", at, round=round, client=client, attempt=1, bytes=8)


def answered(client: str, decision: str, round: int = 1) -> dict[str, Any]:
    return event("answered", round=round, client=client, decision=decision, reason=None)


def committed(round: int) -> dict[str, Any]:
    return event("round_committed", round=round, version=round, outcome="aggregated", called=3,
                 accepted=2, folded=2, bytes_up=16, bytes_down=24, seconds=1.0)  # fmt: skip


def facts(round: int, opened_at: float = 100.0) -> RoundFacts:
    return RoundFacts(round, 3, 2, 1.0, 1.6, 3.0, 4.0, 0.0, opened_at)


def answer(client: str, decision: str, reason: str | None = None, state: str = "") -> DeviceAnswer:
    return DeviceAnswer(1, client, decision, reason, state, 2.0)


def update(
    client: str, weight: float | None, outcome: str = "folded", stale: int = 0
) -> DeviceUpdate:
    return DeviceUpdate(1, client, stale, weight, outcome, 0.25, 1.5)


@pytest.fixture
def fleet() -> FleetState:
    """A fleet whose three devices are connected."""
    state = FleetState(setup())
    state.happen(event("server_started", run="r", round=0, version=0, population=3, rounds=9,
                       counts="rounds", bytes_up=0, bytes_down=0))  # fmt: skip
    for client in CLIENTS:
        state.happen(event("attended", client=client))
    return state


def test_devices_work_while_a_round_is_open(fleet: FleetState) -> None:
    fleet.happen(opened(1))
    assert fleet.device_states() == "iii"
    fleet.happen(answered("near-0000", "accept"))
    fleet.happen(answered("far-0000", "accept"))
    fleet.happen(received("near-0000"))
    assert fleet.device_states() == "uiw"
    assert fleet.working_by_group() == {"far": 1}
    fleet.happen(answered("far-0000", "abort"))
    assert fleet.device_states() == "uix"


def test_a_device_that_has_left_is_away_and_no_longer_works(fleet: FleetState) -> None:
    fleet.happen(opened(1))
    fleet.happen(answered("far-0000", "accept"))
    fleet.happen(event("left", client="far-0000", why="the connection broke"))
    assert fleet.device_states() == "iio"
    assert not fleet.working_by_group()


@pytest.mark.parametrize(("outlives_round", "expected"), [(False, "i"), (True, "w")])
def test_work_outlives_its_round_only_in_modes_that_carry_updates(
    outlives_round: bool, expected: str
) -> None:
    state = FleetState(setup(outlives_round))
    state.happen(event("attended", client="far-0000"))
    for each in (opened(1), answered("far-0000", "accept"), committed(1), opened(2)):
        state.happen(each)
    assert state.device_states()[2] == expected


def test_answers_that_come_before_their_round_is_opened_count_in_it(fleet: FleetState) -> None:
    ahead = (
        received("near-0001", round=2),
        answered("far-0000", "accept", round=2),
        event("declined", round=2, reasons={"battery": 1}),
    )
    for each in (opened(1), received("near-0000"), *ahead):
        fleet.happen(each)
    assert fleet.device_states() == "uii"
    fleet.happen(committed(1))
    assert fleet.device_states() == "uii"
    fleet.happen(opened(2))
    assert fleet.device_states() == "uuw"
    assert fleet.open is not None
    assert fleet.open.declined == 1


def test_a_server_that_starts_again_has_nothing_of_the_rounds_ahead(fleet: FleetState) -> None:
    started = event("server_started", run="r", round=1, version=1, population=3, rounds=9,
                    counts="rounds", bytes_up=0, bytes_down=0)  # fmt: skip
    for each in (
        opened(1), committed(1), opened(2), received("far-0000", round=3), started,
        received("near-0000", round=2), opened(2), committed(2), opened(3),
    ):  # fmt: skip
        fleet.happen(each)
    assert fleet.open is not None
    assert not fleet.open.states


def test_a_dead_server_takes_the_open_round_with_it(fleet: FleetState) -> None:
    fleet.happen(opened(1))
    fleet.happen(answered("far-0000", "accept"))
    fleet.happen(event("died", process="server", status=-9, devices=0, cause=""))
    assert fleet.open is None
    assert fleet.device_states() == "ooo"


def test_the_ledger_says_what_devices_reported_and_what_became_of_their_updates(
    fleet: FleetState,
) -> None:
    for each in (opened(1), received("near-0000"), received("far-0000"), committed(1)):
        fleet.happen(each)
    state = '{"battery":0.47,"charging":true,"network":"cellular"}'
    fleet.learn(
        LedgerRows(
            enrolled=dict.fromkeys(CLIENTS, True),
            rounds=[facts(1)],
            answers=[
                answer("near-0000", "accept", state=state),
                answer("near-0001", "decline", "battery", '{"battery":0.05,"charging":false}'),
                answer("far-0000", "accept"),
            ],
            updates=[update("near-0000", 4.0, stale=2), update("far-0000", None, "late")],
        )
    )
    found = columns(fleet, fleet.device_states())
    assert found == {
        "state": "udx",
        "battery": "40 ",
        "power": "cb ",
        "network": "c  ",
        "staleness": "2  ",
        "fault": "   ",
    }


def test_a_device_that_may_not_train_is_no_idle_device(fleet: FleetState) -> None:
    fleet.learn(LedgerRows(enrolled={"near-0000": True, "near-0001": False, "far-0000": True}))
    assert fleet.device_states() == "i-i"


def test_the_page_says_for_whom_a_round_waited_and_why(fleet: FleetState) -> None:
    for each in (
        opened(1, at=100.0),
        received("near-0000", at=100.5),
        received("near-0001", at=101.0),
        received("far-0000", at=104.0),
        committed(1),
    ):
        fleet.happen(each)
    fleet.learn(
        LedgerRows(
            rounds=[facts(1, opened_at=100.0)],
            answers=[answer(client, "accept") for client in CLIENTS],
            updates=[update(client, 1.0) for client in CLIENTS],
            waits={1: {"far-0000": 0.5}},
        )
    )
    found = sections(fleet, fleet.device_states(), "running")
    # The last update of `near` came after 1 s and that of `far` after 4 s. Its transfer took 1.5 s,
    # of which it waited 0.5 s.
    assert found["finding"]["text"] == "The rounds wait for far."
    assert found["finding"]["more"].startswith(
        "Its last update came 3 s after those of all other groups, in the only round so far. "
        "Most of this time is neither"
    )
    near, far = found["groups"]
    assert (near["weight_share"], far["weight_share"]) == pytest.approx((2 / 3, 1 / 3))
    assert (near["device_share"], far["device_share"]) == pytest.approx((2 / 3, 1 / 3))
    assert (near["slowest"]["client"], far["slowest"]["client"]) == ("near-0001", "far-0000")


def test_acting_faults_mark_their_targets(fleet: FleetState) -> None:
    fault: dict[str, Any] = {
        "fault": "cut",
        "number": 1,
        "targets": ["far-0000"],
        "round": 2,
        "scenario_s": None,
    }
    fleet.happen(event("fault_applied", **fault))
    assert columns(fleet, "iii")["fault"] == "  f"
    [shown] = sections(fleet, "iii", "running")["faults"]
    assert (shown["state"], shown["acting"], shown["targets"]) == ("applied", True, ["far-0000"])
    fleet.happen(event("fault_healed", **fault, with_run=False))
    assert columns(fleet, "iii")["fault"] == "   "


def test_a_fault_with_many_occurrences_has_the_round_of_its_first(fleet: FleetState) -> None:
    for number in range(1, 151):
        fleet.happen(event("fault_applied", fault="cut", number=number, targets=["far-0000"],
                           round=2 * number, scenario_s=None))  # fmt: skip
    [shown] = sections(fleet, "iii", "running")["faults"]
    assert (shown["first"], shown["times"], len(shown["rounds"])) == (2, 150, 100)


def test_seconds_without_traffic_count_as_none(fleet: FleetState) -> None:
    def traffic(at: float, bytes_up: int) -> dict[str, Any]:
        return event("traffic", at, group="far", seconds=1.0, bytes_up=bytes_up, bytes_down=0,
                     capacity_up=1000.0, capacity_down=None)  # fmt: skip

    for each in (traffic(10.0, 125), traffic(11.0, 250), traffic(15.0, 125)):
        fleet.happen(each)
    link = fleet.traffic["far"]
    samples = [(at, up) for at, up, _ in link.samples]
    assert samples == [(10.0, 1000.0), (11.0, 2000.0), (11.0, 0.0), (14.0, 0.0), (15.0, 1000.0)]
    assert (link.cap_up_bps, link.cap_down_bps) == (8000.0, None)


def test_groups_that_share_a_link_are_shown_with_its_tree_of_cells() -> None:
    groups = (GroupSetup("phones", 1, 0), GroupSetup("office", 1, 1))
    cells = (CellPlace("county", 1), CellPlace("north", 2), CellPlace("south", 1))
    state = FleetState(
        RunSetup("run", "run", "wall", False, None, groups, ("phones-0000", "office-0000"),
                 links=(LinkPlace("region", ("phones", "office"), cells),))
    )  # fmt: skip

    def traffic(at: float, **moved: int) -> dict[str, Any]:
        of_cells = {
            name: {"bytes_up": each, "bytes_down": 0, "capacity_up": 500, "capacity_down": None}
            for name, each in moved.items()
        }
        return event("traffic", at, group="region", seconds=1.0, bytes_up=125, bytes_down=0,
                     capacity_up=1000, capacity_down=None, cells=of_cells)  # fmt: skip

    state.happen(traffic(1.0, north=25, county=25))
    state.happen(traffic(2.0, south=125))
    [link] = sections(state, "ii", "running")["links"]
    assert (link["name"], link["groups"], link["cell_count"]) == ("region", ["phones", "office"], 3)
    assert link["cells"] == [
        {"name": name, "depth": depth, "up_bps": bps, "down_bps": 0.0, "cap_up_bps": 4000.0,
         "cap_down_bps": None}
        for name, depth, bps in (("county", 1, 0.0), ("north", 2, 0.0), ("south", 1, 1000.0))
    ]  # fmt: skip
    assert state.link_of("office") is state.traffic["region"]


def test_frequent_events_do_not_push_rare_ones_out_of_the_log(fleet: FleetState) -> None:
    fleet.happen(event("warned", round=1, by="fedavg", warning="look"))
    for _ in range(1000):
        fleet.happen(received("near-0000"))
    lines = fleet.lines_after(0)
    assert "warned" in [line["event"] for _, line in lines]
    numbers = [number for number, _ in lines]
    assert numbers == sorted(set(numbers))
    assert fleet.lines_after(numbers[-2]) == lines[-1:]


def test_the_page_shows_what_an_app_has_measured_last(fleet: FleetState) -> None:
    assert sections(fleet, fleet.device_states(), "running")["app_metrics"] is None
    for round in (0, 1):
        fleet.happen(event("app_measured", round=round, metrics={"server.a\n": round}))
    found = sections(fleet, fleet.device_states(), "running")["app_metrics"]
    assert found == {"round": 1, "metrics": {"server.a?": 1}}

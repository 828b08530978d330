"""What the page says of who holds the rounds up: names and numbers belong to one record."""

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.emulator.live.fleet_state import FleetState, LedgerRows, RoundFacts
from muster.emulator.live.page_state import sections
from muster.emulator.live.round_digest import DeviceAnswer, DeviceUpdate
from muster.emulator.live.run_setup import GroupSetup, RunSetup
from muster.emulator.records.summary import seconds_text

GROUPS = (GroupSetup("near", 3, 0), GroupSetup("far", 3, 3), GroupSetup("office", 1, 6))
CLIENTS = tuple(f"{group.name}-{place:04}" for group in GROUPS for place in range(group.count))


def fleet(clock: str = "rounds", deadline_s: float | None = None) -> FleetState:
    return FleetState(RunSetup("made-up", "run", clock, False, deadline_s, GROUPS, CLIENTS))


def event(name: str, at: float = 100.0, **fields: Any) -> dict[str, Any]:
    return {"event": name, "at": at, "role": "server", "incarnation": 1, **fields}


def learn_round(state: FleetState, number: int, work: Sequence[tuple[str, float, float]]) -> None:
    """Let a round pass.

    Args:
        work: the device, its modelled seconds, and the wall seconds after which its update arrived,
            by which they are ordered.
    """
    opened_at = 1000.0 * number
    state.happen(event("round_opened", opened_at, round=number, called=len(work), scenario_s=0.0))
    for client, _, after_s in sorted(work, key=lambda each: each[2]):
        state.happen(event("received", opened_at + after_s, round=number, client=client, attempt=1,
                           bytes=8))  # fmt: skip
    state.happen(event("round_committed", opened_at + 900, round=number, version=number, called=1,
                       outcome="aggregated", accepted=1, folded=1, bytes_up=0, bytes_down=0,
                       seconds=1.0))  # fmt: skip
    counts = len(work)
    state.learn(
        LedgerRows(
            rounds=[RoundFacts(number, counts, counts, 1.0, 1.0, 1.0, 1.0, 0.0, opened_at)],
            answers=[DeviceAnswer(number, client, "accept", None, None, modelled_s)
                     for client, modelled_s, _ in work],
            updates=[DeviceUpdate(number, client, 0, 1.0, "folded", after_s / 2, after_s / 4)
                     for client, _, after_s in work],
        )
    )  # fmt: skip


def evaluate(state: FleetState, version: int, loss: float | None, accuracy: float | None) -> None:
    state.happen(event("evaluated", round=version, version=version, loss=loss, accuracy=accuracy,
                       seconds=0.1))  # fmt: skip


def shown(state: FleetState, run_state: str = "running") -> dict[str, Any]:
    return sections(state, state.device_states(), run_state)


TIMES = st.floats(0.01, 500.0)
ROUNDS = st.lists(
    st.lists(st.tuples(st.sampled_from(CLIENTS), TIMES, TIMES), min_size=1,
             unique_by=(lambda work: work[0], lambda work: work[1], lambda work: work[2])),
    min_size=1, max_size=4,
)  # fmt: skip


@given(ROUNDS, st.sampled_from(["rounds", "wall", "scaled"]))
def test_every_duration_is_of_the_device_and_the_group_that_are_named_with_it(
    rounds: list[list[tuple[str, float, float]]], clock: str
) -> None:
    state = fleet(clock)
    for number, work in enumerate(rounds, 1):
        learn_round(state, number, work)
    took = [
        {client: modelled_s if clock == "rounds" else after_s for client, modelled_s, after_s in w}
        for w in rounds
    ]
    found = shown(state)
    for group in found["groups"]:
        newest = next((mine for each in reversed(took) if (mine := _of(each, group["name"]))), None)
        slowest = group["slowest"]
        if newest is None:
            assert slowest is None
            continue
        assert slowest["after_s"] == pytest.approx(newest[slowest["client"]])
        assert slowest["after_s"] == pytest.approx(max(newest.values()))
    _compare_sentences(found["finding"], took, clock)


def _of(took: dict[str, float], group: str) -> dict[str, float]:
    return {client: s for client, s in took.items() if client.startswith(f"{group}-")}


def _compare_sentences(finding: dict[str, Any], took: list[dict[str, float]], clock: str) -> None:
    """Compare the group, the counts and the durations of a finding with arithmetic."""
    leads: dict[str, list[float]] = {}
    longest: dict[str, list[float]] = {}
    for each in took:
        of_groups = {g.name: max(mine.values()) for g in GROUPS if (mine := _of(each, g.name))}
        order = sorted(of_groups, key=lambda name: of_groups[name])
        lead = of_groups[order[-1]] - (of_groups[order[-2]] if len(order) > 1 else 0.0)
        leads.setdefault(order[-1], []).append(lead)
        longest.setdefault(order[-1], []).append(of_groups[order[-1]])
    words = f"{finding['text']} {finding['more']}"
    [named] = set(re.findall(r"wait for (\w+)\.|(\w+) worked longest|(\w+) is last", words))
    group = next(filter(None, named))
    assert len(leads[group]) == max(map(len, leads.values()))
    assert _about(median(leads[group]), words)
    often = f"in {len(leads[group])} of the newest {len(took)} rounds"
    assert (often if len(took) > 1 else "in the only round so far") in words
    if clock == "rounds" and finding["holding"]:
        assert _about(median(longest[group]), words)


def _about(seconds: float, words: str) -> bool:
    """Whether a duration is in a text, as it is rounded there."""
    near = {seconds_text(seconds * factor) for factor in (1 - 1e-9, 1, 1 + 1e-9)}
    return any(text in words for text in near)


def test_in_lockstep_the_slowest_are_those_with_the_longest_modelled_work() -> None:
    state = fleet(deadline_s=20.0)
    # On this machine near came last, but far has more modelled work.
    work = [("near-0000", 6.25, 0.004), ("far-0000", 22.0, 0.001), ("far-0001", 21.0, 0.003)]
    learn_round(state, 1, work)
    finding = shown(state)["finding"]
    assert finding == {
        "text": "The rounds wait for far.",
        "more": "In the median round, its slowest device needed 22 s of modelled time for training "
        "and transfers, 15.8 s more than those of all other groups, in the only round so far. "
        "The deadline is 20 s.",
        "holding": True,
    }


def test_without_modelled_time_no_group_holds_rounds_up_in_lockstep() -> None:
    state = fleet()
    learn_round(state, 1, [("near-0000", 0.0, 0.2), ("far-0000", 0.0, 5.0)])
    finding = shown(state)["finding"]
    assert (finding["text"], finding["more"], finding["holding"]) == (
        "No group holds the rounds up.", "No device needs modelled time.", False,
    )  # fmt: skip


@pytest.mark.parametrize("clock", ["rounds", "wall"])
def test_a_fault_that_acts_is_named_before_everything_else(clock: str) -> None:
    state = fleet(clock)
    learn_round(state, 1, [("near-0000", 1.0, 1.0), ("far-0000", 9.0, 9.0)])
    state.traffic.clear()
    for at in (1.0, 2.0):
        state.happen(event("traffic", at, group="far", seconds=1.0, bytes_up=125, bytes_down=0,
                           capacity_up=125, capacity_down=None))  # fmt: skip
    fault: dict[str, Any] = {"fault": "cut", "number": 1, "round": 2, "scenario_s": None,
                             "do": "partition", "targets": ["far-0000", "far-0001"]}  # fmt: skip
    state.happen(event("fault_planned", **fault))
    assert shown(state)["finding"]["text"] == "The rounds wait for far."
    state.happen(event("fault_applied", **fault))
    found = shown(state)
    assert found["finding"]["text"] == "A fault acts: cut (partition) on 2 devices of far."
    assert found["finding"]["holding"]
    assert "The rounds wait for far." in found["finding"]["more"]
    assert "link" not in found["finding"]["more"]
    state.happen(event("fault_healed", **fault, with_run=False))
    assert shown(state)["finding"]["text"] == "The rounds wait for far."


def test_faults_on_the_server_and_on_gateways_are_named_with_them() -> None:
    state = fleet()
    for name, target in (("hold", "server"), ("gate", "gateway-far")):
        fault: dict[str, Any] = {
            "fault": name,
            "number": 1,
            "targets": [target],
            "round": 1,
            "scenario_s": None,
        }
        state.happen(event("fault_applied", **fault))
    text = shown(state)["finding"]["text"]
    assert text == "2 faults act: hold on the server; gate on gateway-far."


@pytest.mark.parametrize(("clock", "expected"), [("rounds", 960.0), ("scaled", 907.5)])
def test_the_scenario_time_is_that_of_the_end_of_the_newest_round(
    clock: str, expected: float
) -> None:
    setup = RunSetup("made-up", "run", clock, False, None, GROUPS, CLIENTS, scale=5.0)
    state = FleetState(setup)
    state.happen(event("round_opened", round=1, called=1, scenario_s=900.0))
    newest = RoundFacts(1, 1, 1, 1.5, 1.0, 1.0, 1.0, 900.0, 100.0, 960.0)
    state.learn(LedgerRows(rounds=[newest]))
    assert shown(state)["run"]["scenario_s"] == expected


@pytest.mark.parametrize("run_state", ["running", "completed"])
def test_a_training_that_failed_is_said_once(run_state: str) -> None:
    state = fleet()
    learn_round(state, 1, [("near-0000", 1.0, 1.0)])
    for number in (2, 3):
        state.happen(
            event("training_failed", round=number, client="far-0001", error=f"KeyError: {number}")
        )
    said = shown(state, run_state)["finding"]["more"]
    assert said.endswith("Training failed on far-0001 in round 2: KeyError: 2.")
    assert said.count("far-0001") == 1


@pytest.mark.parametrize(
    ("loss", "told"), [(2.0, ""), (2.5, "loss 1, now 2.5"), (None, "loss 1, now not finite")]
)
def test_a_model_that_is_far_worse_than_the_initial_one_is_told_of(
    loss: float | None, told: str
) -> None:
    state = fleet()
    learn_round(state, 1, [("near-0000", 1.0, 1.0)])
    evaluate(state, 0, 1.0, None)
    assert "far worse" not in str(shown(state))
    evaluate(state, 1, loss, None)
    worse = f"The model is far worse than the initial one: {told}." if told else ""
    assert worse in str(shown(state))
    assert ("far worse" in str(shown(state))) == bool(worse)


def test_the_steps_of_a_secure_sum_are_told_until_the_round_is_over() -> None:
    state = fleet()
    state.happen(event("round_opened", round=1, called=3, scenario_s=0.0))

    def step(name: str, answered: int | None, attempt: int = 1) -> str:
        told: dict[str, Any] = {"step": name, "asked": 3, "answered": answered, "attempt": attempt}
        state.happen(event("secure_step", round=1, **told))
        return str(shown(state)["finding"]["more"]).partition("Its secure sum is under way: ")[2]

    assert step("keys", None) == "the keys of 3 devices are awaited."
    assert step("keys", 3) == "the keys of 3 of 3 have come."
    assert step("shares", None) == (
        "the keys of 3 of 3 have come, the shares of 3 devices are awaited."
    )
    assert step("keys", None, attempt=2) == "the keys of 3 devices are awaited."
    learn_round(state, 1, [("near-0000", 1.0, 1.0)])
    assert "secure sum" not in str(shown(state))

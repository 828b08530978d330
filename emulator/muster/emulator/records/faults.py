"""What became of the faults of a run, from its journal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.emulator.records.fault_windows import occurrences_of

if TYPE_CHECKING:
    from muster.emulator.records.account import Account

STATES = ("applied", "observed", "healed", "verified")
"""The states that an occurrence of a fault passes, after it was planned."""

_EVENTS = ("fault_planned", "fault_applied", "fault_observed", "fault_verified")


def faults_of(account: "Account") -> list[dict[str, Any]]:
    """The faults of a run in the order of the scenario; empty for a run without faults.

    Each has its name (`fault`), its kind (`do`), its `targets`, the number of occurrences that were
    `planned`, and how many of them were applied, observed, healed and verified; `seen` says what
    was measured when it was observed first, and `rounds` has for each occurrence its `number`, its
    `first` round and the round in which it had `healed`: null if it lasted to the end of the run.
    """
    found: dict[str, dict[str, Any]] = {}
    states: dict[str, dict[str, set[int]]] = {}
    for event in account.events(*_EVENTS):
        name = event["fault"]
        if event["event"] == "fault_planned":
            found[name] = {
                "fault": name,
                "do": event["do"],
                "targets": len(event["targets"]),
                "planned": event["times"],
                **dict.fromkeys(STATES, 0),
                "seen": None,
                "rounds": [],
            }
            states[name] = {state: set() for state in STATES}
        elif name in found:
            _enter(found[name], states[name], event)
    for each in occurrences_of(account) if found else ():
        if each.fault in found:
            fault = found[each.fault]
            fault["healed"] += each.healed is not None
            place = {"number": each.number, "first": each.first, "healed": each.healed}
            fault["rounds"].append(place)
    return list(found.values())


def _enter(fault: dict[str, Any], states: Mapping[str, set[int]], event: Mapping[str, Any]) -> None:
    state, number = event["event"].removeprefix("fault_"), event["number"]
    states[state].add(number)
    fault[state] = len(states[state])
    if state == "observed" and fault["seen"] is None:
        fault["seen"] = event["seen"]


def vacuous(faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the faults that were never observed. The run proves nothing about them."""
    return [fault["fault"] for fault in faults if not fault["observed"]]

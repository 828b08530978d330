"""Checks of the journal against the ledger."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from muster.common.events import AppMeasured
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence, Row
from muster.emulator.run_audit.result import CheckLog

_OF_ROUND = (
    "version",
    "outcome",
    "called",
    "accepted",
    "folded",
    "bytes_up",
    "bytes_down",
    "seconds",
    "epsilon",
)
"""The fields of the event `round_committed` that the table `rounds` has too."""

_OF_EVALUATION = ("round", "loss", "accuracy", "seconds")

_NEEDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "fault_planned": frozenset(),
        "fault_applied": frozenset(),
        "fault_observed": frozenset({"fault_applied"}),
        "fault_healed": frozenset({"fault_applied"}),
        "fault_verified": frozenset({"fault_observed", "fault_healed"}),
    }
)
"""The events of a fault, each with those that must come before it. A fault may be observed after it
was healed, because an update that arrives twice may be recorded with a later round."""


def check_journal(evidence: Evidence, log: CheckLog) -> None:
    """The journal has every committed round and every evaluation once, with the same numbers."""
    rounds = {row["round"]: row for row in evidence.rows("SELECT * FROM rounds")}
    versions = {row["version"]: row for row in evidence.rows("SELECT * FROM evaluations")}
    told, evaluated, measured = Counter[int](), Counter[int](), Counter[int]()
    ages = _staleness(evidence)
    faults = dict[tuple[str, int], set[str]]()
    status: str | None = None
    for event in evidence.events():
        name = event.get("event")
        if name == "round_committed":
            told[event["round"]] += 1
            _compare_event(event, rounds.get(event["round"]), _OF_ROUND, log, event["round"])
            if "staleness" in event:
                told_ages = {int(age): count for age, count in event["staleness"].items()}
                log.compare("staleness in the journal", ages.get(event["round"], {}), told_ages,
                            event["round"])  # fmt: skip
        elif name == "evaluated":
            evaluated[event["version"]] += 1
            row = versions.get(event["version"])
            _compare_event(event, row, _OF_EVALUATION, log, event["round"])
        elif name == "app_measured":
            measured[event["round"]] += 1
            log.compare("metrics of the app in the journal",
                        evidence.estimates(event["round"]).get(AppMeasured.name), event["metrics"],
                        event["round"])  # fmt: skip
        elif name == "ended":
            status = event.get("status")
        elif name in _NEEDS:
            _check_fault(event, faults, log)
    recorded = evidence.one("SELECT status FROM run")
    ended = recorded is not None
    _compare_counts("the event round_committed of round", rounds.keys(), told, ended, log)
    _compare_counts("the event evaluated of version", versions.keys(), evaluated, ended, log)
    query = f"SELECT round FROM estimates WHERE name = '{AppMeasured.name}'"
    of_app = [row["round"] for row in evidence.rows(query)]
    _compare_counts("the event app_measured of round", of_app, measured, ended, log)
    if not ended:
        log.skip("the end of the journal: the run goes on, or its server was killed")
    else:
        log.compare("status of the run in the journal", recorded, status)


def _staleness(evidence: Evidence) -> Mapping[int, Mapping[int, int]]:
    """The number of updates that count, by round and staleness."""
    found = dict[int, dict[int, int]]()
    query = (
        "SELECT round, staleness, count(*) FROM contributions WHERE outcome = 'folded' "
        "GROUP BY round, staleness"
    )
    for round, age, count in evidence.rows(query):
        found.setdefault(round, {})[age] = count
    return found


def _compare_event(
    event: dict[str, Any], row: Row | None, names: tuple[str, ...], log: CheckLog, round: int
) -> None:
    if row is None:
        return  # `_compare_counts` reports it
    for name in names:
        found = event.get(name)
        log.compare(f"{name} in the journal", row[name], found, round)


def _compare_counts(
    what: str, known: Iterable[int], told: Counter[int], ended: bool, log: CheckLog
) -> None:
    """A server that was killed may not have written its last events yet."""
    numbers = set(known)
    for number in sorted(numbers | set(told)):
        right = int(number in numbers)
        if told[number] or ended:
            log.compare(f"times that the journal has {what} {number}", right, told[number])


def _check_fault(
    event: dict[str, Any], faults: dict[tuple[str, int], set[str]], log: CheckLog
) -> None:
    """Every occurrence of a fault is applied before it is observed or healed, and both before it is
    verified; and none of this happens twice."""
    name, kind, round = str(event.get("fault")), str(event["event"]), event.get("round")
    before = faults.setdefault((name, int(event.get("number") or 0)), set())
    what = f"events of the fault {name!r} before {kind}"
    missing = ", ".join(sorted(_NEEDS[kind] - before))
    log.require(not missing, what, missing, "none of them", round)
    log.require(kind not in before, what, f"no {kind}", kind, round)
    before.add(kind)


CHECKS = (
    Check(
        "the journal",
        "It has every committed round and every evaluation once, with the numbers of the "
        "ledger, and the end of the run. A fault was applied before it was observed or "
        "healed, both before it was verified, and nothing of this is there twice.",
        check_journal,
    ),
)

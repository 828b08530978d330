"""The check of faults: their events follow from the timeline, the rounds and the rows of the
ledger."""

from collections.abc import Iterator, Mapping
from typing import Any

from muster.common.faults import TracedFault
from muster.emulator.fleet.scenario_faults import ScenarioFaults
from muster.emulator.injection.recorder import FaultRecorder
from muster.emulator.records.fault_traces import LedgerTraces, journal_lines
from muster.emulator.run_audit.check import Check
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.leaves import MISSING, pairs
from muster.emulator.run_audit.promises import promised_faults
from muster.emulator.run_audit.result import CheckLog
from muster.emulator.run_folder.folder import JOURNAL, LEDGER

_Key = tuple[str, str, int]


def check_faults(evidence: Evidence, log: CheckLog) -> None:
    """The journal tells of the scenario's faults what the ledger shows of them."""
    faults = promised_faults(evidence)
    found, by_hand = _told(evidence)
    if faults is None:
        for key in found.keys() - {key for key in found if key[1] in by_hand}:
            log.require(False, f"event {key[0]}", "none, because there are no faults", key[1])
        return
    if not evidence.current:
        log.skip("events of faults: the ledger is of an earlier muster")
        return
    expected = dict(_expected(evidence, faults))
    traced = {f.name for f in faults.timeline.faults if isinstance(f.do, TracedFault)}
    followed = any(event.get("role") == "supervisor" for event in evidence.events())
    ended = evidence.status in ("completed", "diverged") and evidence.undisturbed
    whole = followed and ended
    for key in sorted(expected.keys() | found.keys()):
        event, name, number = key
        what = f"{event} of {name!r}, occurrence {number}"
        if name in by_hand or (name not in traced and event != "fault_planned"):
            continue  # it was injected, and what became of it is not in the ledger
        if key not in found:
            if whole:
                log.require(False, what, "one", "none")
            continue
        if key not in expected:
            log.require(not whole, what, "none, by the ledger", "one")
            continue
        told = {field: found[key].get(field, MISSING) for field in expected[key]}
        for place, right, there in pairs(expected[key], told):
            log.compare(f"{place} of {what}", right, there)


def _told(evidence: Evidence) -> tuple[dict[_Key, Mapping[str, Any]], set[str]]:
    """The events of faults in the journal; and the names of faults that were injected by hand."""
    found, by_hand = dict[_Key, Mapping[str, Any]](), set[str]()
    for event in evidence.events():
        name = str(event.get("event"))
        if name == "fault_injected":
            by_hand.add(str(event.get("fault")))
        if name.startswith("fault_"):
            key = name, str(event.get("fault")), int(event.get("number") or 0)
            found.setdefault(key, event)
    return found, by_hand


def _expected(
    evidence: Evidence, faults: ScenarioFaults
) -> Iterator[tuple[_Key, Mapping[str, Any]]]:
    """The events that follow from the timeline, the rounds of the journal, and the ledger."""
    traces = LedgerTraces(evidence.folder / LEDGER)
    recorder = FaultRecorder(faults.timeline, faults.time, traces, set())
    events = list(recorder.plan())
    for line in journal_lines(evidence.folder / JOURNAL):
        if line["event"] in ("round_opened", "round_committed", "ended"):
            events += recorder.happen(line)
    for event in events:
        fields = dict(event.fields())
        yield (event.name, fields["fault"], fields.get("number", 0)), fields


CHECKS = (
    Check(
        "faults",
        "The events of the scenario's faults: what was planned, and of faults inside devices when "
        "they were applied, observed, healed and verified, by the rows of the ledger.",
        check_faults,
    ),
)

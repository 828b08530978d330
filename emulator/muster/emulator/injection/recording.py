"""Records the events of faults in the journal of a run that is over, for a simulated run."""

from pathlib import Path

from muster.common.clock import WallClock
from muster.common.journal import Journal
from muster.emulator.fleet.scenario_faults import ScenarioFaults, write_timeline
from muster.emulator.injection.recorder import FaultRecorder
from muster.emulator.records.fault_traces import LedgerTraces, journal_lines, recorded_events
from muster.emulator.run_folder.folder import JOURNAL, LEDGER


def recorder_of(folder: Path, faults: ScenarioFaults) -> FaultRecorder:
    """The recorder of a run's faults. It goes on where the journal in the folder ends."""
    return FaultRecorder(
        faults.timeline,
        faults.time,
        LedgerTraces(folder / LEDGER),
        recorded_events(folder / JOURNAL),
    )


def record_afterwards(folder: Path, faults: ScenarioFaults) -> None:
    """Write the timeline of a run that is over, and its events into the journal."""
    if not faults.timeline:
        return
    write_timeline(folder, faults.timeline)
    recorder = recorder_of(folder, faults)
    lines = list(journal_lines(folder / JOURNAL))
    journal = Journal(folder / JOURNAL, "supervisor", 1, WallClock())
    try:
        for event in recorder.plan():
            journal.add(event, lines[0]["at"] if lines else None)
        for line in lines:
            for event in recorder.happen(line):
                journal.add(event, line["at"])
    finally:
        journal.close()

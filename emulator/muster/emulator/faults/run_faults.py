"""The faults of a run as the supervisor has them: what it records of them, and injects."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.common.events import Tell
from muster.emulator.faults.of_scenario import ScenarioFaults, write_timeline
from muster.emulator.faults.recording import recorder_of
from muster.emulator.faults.traces import journal_lines
from muster.emulator.runs.run_folder import JOURNAL


class RunFaults:
    """The faults of a run.

    Args:
        record: records an event in the journal.
    """

    def __init__(self, folder: Path, faults: ScenarioFaults, record: Tell) -> None:
        self._folder = folder
        self._record = record
        self._faults = faults
        self._recorder = recorder_of(folder, faults) if faults.timeline else None

    def begin(self) -> None:
        """Write the timeline, and record what the journal of an earlier part of the run implies."""
        if self._recorder is None:
            return
        write_timeline(self._folder, self._faults.timeline)
        for event in self._recorder.plan():
            self._record(event)
        for line in journal_lines(self._folder / JOURNAL):
            if line["event"] != "ended":  # the run goes on
                self.happen(line)

    def happen(self, line: Mapping[str, Any]) -> None:
        """Take notice of a line of the journal."""
        if self._recorder is not None:
            for event in self._recorder.happen(line):
                self._record(event)

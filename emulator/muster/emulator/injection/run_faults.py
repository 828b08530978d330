"""The faults of a run as the supervisor has them: what it records of them, and what it injects."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.client.processes.config import PackProcess
from muster.common.clock import Clock, WallClock
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.events import Tell
from muster.common.fault_events import FaultApplied, FaultHealed
from muster.common.journal import Journal
from muster.emulator.faults.injection import InjectedFault
from muster.emulator.fleet.scenario_faults import ScenarioFaults, write_timeline
from muster.emulator.injection.fleet_site import FleetSite
from muster.emulator.injection.injector import FaultInjector
from muster.emulator.injection.manual_faults import FaultRequest, HealRequest, ManualFaults
from muster.emulator.injection.recorder import FaultRecorder
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.records.fault_traces import LedgerTraces, journal_lines, recorded_events
from muster.emulator.run_folder.folder import JOURNAL, LEDGER


class RunFaults:
    """The faults of a run.

    Args:
        site: the running fleet.
        record: records an event in the journal.
        failed: called if a fault cannot be injected or healed.
    """

    def __init__(
        self,
        folder: Path,
        configs: ProcessConfigs,
        site: FleetSite,
        clock: Clock,
        record: Tell,
        failed: Callable[[Exception], None],
    ) -> None:
        self._folder = folder
        self._record = record
        self._faults = faults = configs.faults
        self._site = site
        scale = configs.scenario.clock.scale
        self._recorder = recorder_of(folder, faults)
        recorded = recorded_events(folder / JOURNAL)
        applied = {key[1:] for key in recorded if key[0] == "fault_applied"}
        self._injector = FaultInjector(
            faults.timeline, faults.time, site, clock, scale, record, failed, applied
        )
        taken = {fault.name for fault in faults.timeline.faults} | {key[1] for key in recorded}
        self._manual = ManualFaults(
            configs.scenario, configs.residents, site, self._injector, record, taken
        )

    @property
    def injects(self) -> bool:
        """Whether any fault strikes programs or links, so that the journal must be read soon."""
        return any(isinstance(fault.do, InjectedFault) for fault in self._faults.timeline.faults)

    def begin(self) -> None:
        """Write the timeline, and record what the journal of an earlier part of the run implies."""
        write_timeline(self._folder, self._faults.timeline)
        for event in self._recorder.plan():
            self._record(event)
        newest: Mapping[str, Any] = {}
        acting: dict[tuple[str, int], Sequence[str]] = {}
        for line in journal_lines(self._folder / JOURNAL):
            if line["event"] != "ended":  # the run goes on
                self._follow(line)
            if line["event"] == "round_opened":
                newest = line
            elif line["event"] == FaultApplied.name:
                acting[line["fault"], line["number"]] = line["targets"]
            elif line["event"] == FaultHealed.name:
                acting.pop((line["fault"], line["number"]), None)
        inside = {fault.name for fault in self._faults.inside}
        for (name, number), targets in acting.items():
            if name not in inside:  # what was injected ended with that part of the run
                now = newest.get("round"), newest.get("scenario_s")
                self._record(FaultHealed(name, number, targets, *now))

    def add_packs(self, packs: Iterable[PackProcess]) -> None:
        """Enter the packs whose processes will run."""
        self._site.add_packs(packs)

    def happen(self, line: Mapping[str, Any]) -> None:
        """Take notice of a line of the journal."""
        self._site.happen(line)
        self._injector.happen(line)
        self._follow(line)

    def _follow(self, line: Mapping[str, Any]) -> None:
        for event in self._recorder.happen(line):
            self._record(event)

    async def handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inject or heal faults at the request of a person.

        Raises:
            ConfigError: the request is wrong, or cannot be met now.
        """
        match request:
            case {"inject": dict() as asked}:
                return await self._manual.inject(validate(FaultRequest, asked, "the request"))
            case {"heal": dict() as asked}:
                chosen = validate(HealRequest, asked, "the request")
                return {"healed": await self._manual.heal(chosen)}
            case _:
                raise ConfigError("expected a request to inject or to heal faults")

    def died(self, program: str, status: int) -> bool:
        """Take notice of a death; return whether a fault has ordered it."""
        return self._site.died(program, status)

    async def started(self, program: str) -> None:
        """Take notice that a program that had died was started again."""
        await self._site.started(program)

    def end(self) -> None:
        """Heal everything soon, and begin nothing any more."""
        self._site.end()
        self._injector.end()

    async def close(self) -> None:
        """Heal everything."""
        self.end()
        await self._injector.close()
        await self._site.close()


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

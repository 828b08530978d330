"""From a timeline to the faults that every device gets with its configuration."""

from muster.client.faults.contract import LifeFault, UpdateFault
from muster.client.faults.scheduled import DeviceFault, Window
from muster.emulator.faults.times import RunTime
from muster.emulator.fleet.fault_timeline import FaultTimeline, Occurrence, TimelineFault


def device_faults(timeline: FaultTimeline, time: RunTime) -> list[DeviceFault]:
    """The faults that act inside devices, in the order of the scenario.

    In lockstep, where rounds are steps, and for faults that begin at a scenario time, a window has
    steps; otherwise it has rounds.
    """
    return [
        DeviceFault.on(fault.name, fault.do, _windows(fault, time))
        for fault in timeline.faults
        if isinstance(fault.do, LifeFault | UpdateFault)
    ]


def _windows(fault: TimelineFault, time: RunTime) -> dict[str, list[Window]]:
    """The windows of each target of a fault. Targets of one occurrence share the window."""
    windows: dict[str, list[Window]] = {}
    for occurrence in fault.occurrences:
        window = window_of(occurrence, time)
        for target in occurrence.targets:
            windows.setdefault(target, []).append(window)
    return windows


def window_of(occurrence: Occurrence, time: RunTime) -> Window:
    """The steps in which an occurrence acts or, if its scenario time is not known, its rounds."""
    first, end = occurrence.first_round, occurrence.end_round
    if first is not None and time.fixed:
        return Window(unit="step", first=first - 1, end=None if end is None else end - 1)
    if first is not None:
        return Window(unit="round", first=first, end=end)
    assert occurrence.begin_s is not None
    end_s = occurrence.end_s
    return Window(
        unit="step",
        first=time.first_step(occurrence.begin_s),
        end=None if end_s is None else time.first_step(end_s),
    )

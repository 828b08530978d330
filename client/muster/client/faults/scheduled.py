"""The faults of devices as a process gets them: each with its devices and its windows."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field

from muster.client.faults import AnyDeviceFault
from muster.client.faults.contract import LifeFault, UpdateFault
from muster.common.config import Section

_LAST = 2**53


class Window(Section):
    """Where a fault acts: from `first` up to, but not including, `end`."""

    unit: Literal["round", "step"]
    """round: the round of the call. step: the step of the device's life, from 0."""

    first: Annotated[int, Field(ge=0, le=_LAST)]
    end: Annotated[int, Field(ge=0, le=_LAST)] | None = None
    """Absent: to the end of the run."""

    def has(self, round: int, step: int) -> bool:
        place = round if self.unit == "round" else step
        return self.first <= place and (self.end is None or place < self.end)


class DeviceFault(Section):
    """A fault that acts inside some devices."""

    name: str
    """The name of the fault in the scenario; part of its random streams."""

    do: AnyDeviceFault

    windows: list[list[Window]]
    """Where the fault acts: lists of windows of one unit, in order and without overlaps. Devices on
    which it acts in the same windows share a list."""

    devices: dict[str, int]
    """The place in `windows` of each of its devices, by client."""

    @classmethod
    def on(
        cls, name: str, do: LifeFault | UpdateFault, windows: Mapping[str, list[Window]]
    ) -> Self:
        """A fault that acts on each client in its windows, in order. Clients with the same
        objects as windows share a list."""
        places: dict[tuple[int, ...], int] = {}
        lists, devices = list[list[Window]](), dict[str, int]()
        for client, own in windows.items():
            devices[client] = places.setdefault(tuple(map(id, own)), len(lists))
            if devices[client] == len(lists):
                lists.append(own)
        return cls(name=name, do=do, windows=lists, devices=devices)

    def acts(self, client: str, round: int, step: int) -> bool:
        if client not in self.devices:
            return False
        windows = self.windows[self.devices[client]]
        place = round if windows[0].unit == "round" else step
        begun = bisect_right(windows, place, key=lambda window: window.first)
        return begun > 0 and windows[begun - 1].has(round, step)

    def of(self, clients: Sequence[str]) -> "DeviceFault | None":
        """The same fault of these clients alone; None if it strikes none of them."""
        own = {client: self.devices[client] for client in clients if client in self.devices}
        if not own:
            return None
        places = {old: new for new, old in enumerate(sorted(set(own.values())))}
        changes = {
            "windows": [self.windows[old] for old in places],
            "devices": {client: places[old] for client, old in own.items()},
        }
        return self.model_copy(update=changes)


def faults_of(faults: Sequence[DeviceFault], clients: Sequence[str]) -> list[DeviceFault]:
    """The faults that strike any of these clients, for these clients alone."""
    return [own for fault in faults if (own := fault.of(clients)) is not None]


def life_faults(faults: Sequence[DeviceFault]) -> list[DeviceFault]:
    return [fault for fault in faults if isinstance(fault.do, LifeFault)]


def update_faults(faults: Sequence[DeviceFault]) -> list[DeviceFault]:
    return [fault for fault in faults if isinstance(fault.do, UpdateFault)]

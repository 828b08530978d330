"""The faults of devices as a process gets them: each with its devices and its windows."""

from collections.abc import Sequence
from typing import Annotated, Literal

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
    windows: dict[str, list[Window]]
    """Where the fault acts on each of its devices, by client."""

    def acts(self, client: str, round: int, step: int) -> bool:
        return any(window.has(round, step) for window in self.windows.get(client, ()))

    def of(self, clients: Sequence[str]) -> "DeviceFault | None":
        """The same fault of these clients alone; None if it strikes none of them."""
        windows = {client: self.windows[client] for client in clients if client in self.windows}
        return self.model_copy(update={"windows": windows}) if windows else None


def faults_of(faults: Sequence[DeviceFault], clients: Sequence[str]) -> list[DeviceFault]:
    """The faults that strike any of these clients, for these clients alone."""
    return [own for fault in faults if (own := fault.of(clients)) is not None]


def life_faults(faults: Sequence[DeviceFault]) -> list[DeviceFault]:
    return [fault for fault in faults if isinstance(fault.do, LifeFault)]


def update_faults(faults: Sequence[DeviceFault]) -> list[DeviceFault]:
    return [fault for fault in faults if isinstance(fault.do, UpdateFault)]

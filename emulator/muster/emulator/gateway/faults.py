"""What can be wrong with a device's link, beside being slow; with no I/O in it.

    offline    its connections are closed (FIN) at once, and so is every new one
    blackhole  sockets stay and nothing is forwarded; new connections are accepted, and silent
    cut        bytes of one direction are read and thrown away
    limit      a connection is reset once it has delivered so many bytes in one direction
    reset      its connections are reset (RST), once; nothing stands afterwards

Faults stand side by side. When a black hole or a cut is healed, the connections that lived under it
are reset: bytes of them are lost, and a TCP connection that goes on without them would be a lie.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from muster.common.config import Section
from muster.emulator.gateway.rates import Direction

FaultName = Literal["offline", "blackhole", "cut", "limit", "reset"]

_DIRECTED = ("cut", "limit")


class Fault(Section):
    """One thing that goes wrong."""

    fault: FaultName

    direction: Direction | None = None
    """Which bytes, for cut and limit."""

    bytes: Annotated[int, Field(gt=0)] | None = None
    """How many a connection delivers before it is reset, for limit; those of a connection that is
    there already count from now."""

    for_s: Annotated[float, Field(gt=0)] | None = None
    """Heals by itself after so many wall seconds; absent: stands until it is healed."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        if (self.direction is not None) != (self.fault in _DIRECTED):
            verb = "needs" if self.direction is None else "has no"
            raise ValueError(f'{self.fault} {verb} direction ("up" or "down")')
        if (self.bytes is not None) != (self.fault == "limit"):
            verb = "needs" if self.bytes is None else "has no"
            raise ValueError(f"{self.fault} {verb} bytes")
        if self.fault == "reset" and self.for_s is not None:
            raise ValueError("reset happens once; it has no for_s")
        return self

    @property
    def key(self) -> tuple[FaultName, Direction | None]:
        """What it replaces when it stands already."""
        return self.fault, self.direction


@dataclass(slots=True)
class ActiveFaults:
    """The faults of one device."""

    faults: dict[tuple[FaultName, Direction | None], Fault] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.faults)

    @property
    def offline(self) -> bool:
        return ("offline", None) in self.faults

    @property
    def blackhole(self) -> bool:
        return ("blackhole", None) in self.faults

    def cut(self, direction: Direction) -> bool:
        """Whether bytes of a direction are thrown away."""
        return ("cut", direction) in self.faults

    def limit(self, direction: Direction) -> int | None:
        """Bytes that a connection delivers; None: as many as there are."""
        fault = self.faults.get(("limit", direction))
        return fault.bytes if fault else None

    def add(self, fault: Fault) -> None:
        """Have a fault stand; a reset does not."""
        if fault.fault != "reset":
            self.faults[fault.key] = fault

    def heal(self, name: FaultName | None = None) -> None:
        """Heal what has a name, or everything."""
        for key in [key for key in self.faults if name in (None, key[0])]:
            del self.faults[key]

    def expire(self, fault: Fault) -> bool:
        """Heal this very fault; whether it still stood (a later one may have replaced it)."""
        stood = self.faults.get(fault.key) is fault
        if stood:
            del self.faults[fault.key]
        return stood

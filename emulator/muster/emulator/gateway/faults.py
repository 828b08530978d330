"""Faults of a device's link, besides being slow. This module does no I/O.

    offline    all connections are closed (FIN) at once, and so is every new one
    blackhole  sockets stay open but nothing is forwarded; new connections are accepted but silent
    cut        bytes of one direction are read and thrown away
    limit      a connection is reset once it has delivered a number of bytes in one direction
    quota      the link is a black hole once it has delivered a number of bytes in one direction
    flap       the link is down and up in turn: while it is down, offline or a black hole
    reset      all connections are reset (RST) once; no fault stays active afterwards

Several faults can be active at the same time. When a black hole or a cut is healed, the connections
that existed under it are reset: some of their bytes are lost, and no real TCP connection continues
without lost bytes.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from muster.common.config import Section
from muster.common.rates.recording import DIRECTIONS, Direction

FaultName = Literal["offline", "blackhole", "cut", "limit", "quota", "flap", "reset"]

_DIRECTED = ("cut", "limit", "quota")
_COUNTED = ("limit", "quota")


class Fault(Section):
    """One fault of a device's link."""

    fault: FaultName

    direction: Direction | None = None
    """The direction that cut, limit or quota affects."""

    bytes: Annotated[int, Field(gt=0)] | None = None
    """For limit, how many bytes a connection delivers before it is reset. Connections that already
    exist count from now. For quota, how many bytes all connections deliver together from now on."""

    down_s: Annotated[float, Field(gt=0)] | None = None
    """For flap, wall seconds for which the link is down. It begins with this."""

    up_s: Annotated[float, Field(gt=0)] | None = None
    """For flap, wall seconds for which the link is up again."""

    silent: bool = False
    """For flap, whether the link is a black hole while it is down, rather than offline."""

    for_s: Annotated[float, Field(gt=0)] | None = None
    """Wall seconds after which the fault heals by itself; absent: active until it is healed."""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        if (self.direction is not None) != (self.fault in _DIRECTED):
            verb = "needs" if self.direction is None else "has no"
            raise ValueError(f'{self.fault} {verb} direction ("up" or "down")')
        if (self.bytes is not None) != (self.fault in _COUNTED):
            verb = "needs" if self.bytes is None else "has no"
            raise ValueError(f"{self.fault} {verb} bytes")
        for name, given in (("down_s", self.down_s), ("up_s", self.up_s), ("silent", self.silent)):
            if self.fault == "flap" and given is None:
                raise ValueError(f"flap needs {name}")
            if self.fault != "flap" and given:
                raise ValueError(f"{self.fault} has no {name}")
        if self.fault == "reset" and self.for_s is not None:
            raise ValueError("reset happens once; it has no for_s")
        return self

    @property
    def key(self) -> tuple[FaultName, Direction | None]:
        """Key of the fault; a new fault replaces an active one with the same key."""
        return self.fault, self.direction


@dataclass(slots=True)
class ActiveFaults:
    """The active faults of one device.

    Attributes:
        spent: the directions whose quota has been used up.
        down: the fault that flap makes active now.
    """

    faults: dict[tuple[FaultName, Direction | None], Fault] = field(default_factory=dict)

    spent: set[Direction] = field(default_factory=set)
    down: FaultName | None = None

    def __bool__(self) -> bool:
        return bool(self.faults)

    @property
    def offline(self) -> bool:
        return ("offline", None) in self.faults or self.down == "offline"

    @property
    def blackhole(self) -> bool:
        whole = ("blackhole", None) in self.faults or self.down == "blackhole"
        return whole or bool(self.spent)

    @property
    def strike_new(self) -> bool:
        """Whether a connection that begins now is struck at once."""
        return self.offline or self.blackhole or any(self.cut(each) for each in DIRECTIONS)

    def cut(self, direction: Direction) -> bool:
        """Whether bytes of this direction are thrown away."""
        return ("cut", direction) in self.faults

    def limit(self, direction: Direction) -> int | None:
        """Bytes that a connection delivers in this direction before it is reset; None: no limit."""
        fault = self.faults.get(("limit", direction))
        return fault.bytes if fault else None

    def quota(self, direction: Direction) -> int | None:
        """Bytes that the link delivers in this direction before it is silent; None: no quota."""
        fault = self.faults.get(("quota", direction))
        return fault.bytes if fault else None

    def add(self, fault: Fault) -> None:
        """Make a fault active; a reset never stays active."""
        if fault.fault != "reset":
            self.faults[fault.key] = fault

    def heal(self, name: FaultName | None = None, direction: Direction | None = None) -> None:
        """Heal the faults with this name, or all (None), in one direction or both (None)."""
        for key in list(self.faults):
            if name in (None, key[0]) and direction in (None, key[1]):
                del self.faults[key]
        self._tidy()

    def expire(self, fault: Fault) -> bool:
        """Heal exactly this fault. Return whether it was still active, because a later one may have
        replaced it."""
        active = self.faults.get(fault.key) is fault
        if active:
            del self.faults[fault.key]
            self._tidy()
        return active

    def _tidy(self) -> None:
        """Forget the state of faults that are not active any more."""
        self.spent = {each for each in self.spent if self.quota(each) is not None}
        if ("flap", None) not in self.faults:
            self.down = None

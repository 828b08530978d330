"""The requests of a gateway's control port, as `control` describes them."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Literal

import orjson
from pydantic import Field

from muster.common.config import S, Section
from muster.common.errors import ConfigError
from muster.common.rates.recording import Direction
from muster.emulator.gateway.faults import Fault, FaultName
from muster.emulator.links.shape import Shape, SharedState


class Hello(Section):
    """The first line of a connection."""

    token: str
    """What the caller shows (`Credentials.shown`), hexadecimal."""


class Ping(Section):
    do: Literal["ping"]


class Stats(Section):
    do: Literal["stats"]
    clients: list[str] | None = None
    """Null: all devices."""


class SetShape(Section):
    do: Literal["set"]
    clients: list[str] | None = None
    """Null: all devices."""
    shape: Shape | None
    """The fields to change; absent fields stay as they are. Null: the shape that each device had
    when the gateway started."""


class SetShared(SharedState):
    do: Literal["set_shared"]


class BeginFault(Fault):
    do: Literal["fault"]
    clients: list[str] | None = None


class Heal(Section):
    do: Literal["heal"]
    clients: list[str] | None = None
    fault: FaultName | None = None
    """Null: every fault."""
    direction: Direction | None = None
    """Null: both directions."""


class Upstream(Section):
    do: Literal["upstream"]
    address: str


REQUESTS: Mapping[str, type[Section]] = MappingProxyType(
    {
        "ping": Ping,
        "stats": Stats,
        "set": SetShape,
        "set_shared": SetShared,
        "fault": BeginFault,
        "heal": Heal,
        "upstream": Upstream,
    }
)


class SlotRequest(Section):
    """A request of a device for a slot."""

    client: str
    round: Annotated[int, Field(ge=0)]


class Contend(SlotRequest):
    do: Literal["contend"]
    active: bool
    of: Annotated[int, Field(gt=0)]


class Take(SlotRequest):
    do: Literal["take"]


class Give(SlotRequest):
    do: Literal["give"]


DEVICE_REQUESTS: Mapping[str, type[SlotRequest]] = MappingProxyType(
    {"contend": Contend, "take": Take, "give": Give}
)


def parse_request(line: bytes, known: Mapping[str, type[S]]) -> S:
    """Parse a line as one of the `known` requests.

    Raises:
        ConfigError: the line is not a known request, or it lacks something.
    """
    with suppress(ValueError):
        asked = orjson.loads(line)  # it refuses deep nesting, which ends json's in a RecursionError
        if isinstance(asked, dict):
            do = asked.get("do")
            if isinstance(do, str) and do in known:
                return known[do].from_json(line)
            raise ConfigError(f"do: expected one of {', '.join(known)}; found {do!r}")
    raise ConfigError("expected a request: a JSON object on one line")

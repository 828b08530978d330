"""What a gateway is started with."""

from muster.common.config import Section
from muster.common.lines import SharedLine
from muster.emulator.links.settings import Shape


def gateway_name(group: str) -> str:
    """What the process of a group's gateway, and its log, are called."""
    return f"gateway-{group}"


class GatewayDevice(Section):
    """One device behind a gateway."""

    client: str
    shape: Shape = Shape()


class GatewayProcess(Section):
    """What the gateway of a group is started with, on its standard input."""

    group: str
    seed: int
    devices: list[GatewayDevice]
    shared: SharedLine = SharedLine()
    """What they share; its `slots` are granted over the control port."""

    upstream: str
    """host:port of the server."""

    host: str = "127.0.0.1"
    """Where it listens: one port for every device, and the control port."""

    first_port: int = 0
    """The control port; those of the devices follow it, in their order. 0: any free ones."""

    again: "Ports | None" = None
    """Where it listened before it died; it listens there again."""

    ready: str | None = None
    """A file that it writes when all ports are open: JSON of Ports."""

    words: str | None = None
    """A file in which it keeps what devices have said about slots, for itself when it is started
    again; absent: there are no slots."""

    controller_token: str
    """Hexadecimal; who shows it may change settings."""

    device_token: str
    """Hexadecimal, the fleet's token; who shows it may ask for slots."""

    lease_s: float = 10.0
    """Wall seconds without a word from a controller after which it heals itself."""


class Ports(Section):
    """Where a gateway listens."""

    host: str
    """As its devices know it."""

    control: int
    devices: dict[str, int]
    """By client."""

    outside: str | None = None
    """host:port of the control port for who is not in its network; absent: the same."""

    @property
    def controllers(self) -> tuple[str, int]:
        """Where controllers reach it."""
        if self.outside is None:
            return self.host, self.control
        host, _, port = self.outside.rpartition(":")
        return host, int(port)

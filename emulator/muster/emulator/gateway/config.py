"""The settings with which a gateway is started, and the ports where it listens."""

from muster.common.config import Section
from muster.common.shared_lines import SharedLine
from muster.emulator.links.shape import Shape


def gateway_name(group: str) -> str:
    """The name of the process of a group's gateway, and of its log."""
    return f"gateway-{group}"


class GatewayDevice(Section):
    """One device behind a gateway."""

    client: str
    shape: Shape = Shape()


class GatewayProcess(Section):
    """The settings that the gateway of a group reads from its standard input."""

    group: str
    seed: int
    devices: list[GatewayDevice]
    shared: SharedLine = SharedLine()
    """The link that the devices share. Its `slots` are granted over the control port."""

    upstream: str
    """Address of the server, host:port."""

    host: str = "127.0.0.1"
    """Address on which the gateway listens, with one port for every device and the control port."""

    first_port: int = 0
    """The control port; the ports of the devices follow it in order. 0: any free ports."""

    again: "Ports | None" = None
    """The ports of a gateway that died. Its successor listens on them again."""

    ready: str | None = None
    """A file to which the gateway writes its Ports as JSON once all ports are open."""

    words: str | None = None
    """A file in which the gateway keeps the slot requests of devices, so that it can read them when
    it is started again; absent: there are no slots."""

    credentials: str
    """The file with the gateway's credentials and the callers that it knows: the supervisor may
    change settings, and devices may ask for slots."""

    lease_s: float = 10.0
    """Wall seconds without a request from a controller after which the gateway heals itself."""


class Ports(Section):
    """The ports where a gateway listens."""

    host: str
    """The gateway's host name or address, as its devices reach it."""

    control: int
    """The control port."""

    devices: dict[str, int]
    """The ports of the devices, by client."""

    outside: str | None = None
    """Address of the control port, host:port, for programs outside the gateway's network; absent:
    the same as inside."""

    @property
    def controllers(self) -> tuple[str, int]:
        """Host and port where controllers reach the gateway."""
        if self.outside is None:
            return self.host, self.control
        host, _, port = self.outside.rpartition(":")
        return host, int(port)

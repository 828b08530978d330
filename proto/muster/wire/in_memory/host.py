"""The transport of one host in a network in memory."""

from muster.wire.channels import Options
from muster.wire.in_memory.client import Channel
from muster.wire.in_memory.network import InMemoryNetwork
from muster.wire.in_memory.server import InMemoryServer


class Host:
    """The `Transport` of one host."""

    def __init__(self, network: InMemoryNetwork, name: str) -> None:
        self._network = network
        self.name = name

    def channel(self, address: str, options: Options) -> Channel:
        return Channel(self._network, self.name, address)

    def server(self, options: Options) -> InMemoryServer:
        return InMemoryServer(self._network, self.name)

    def listen(self, server: InMemoryServer, address: str) -> int:
        return server.add_insecure_port(address)

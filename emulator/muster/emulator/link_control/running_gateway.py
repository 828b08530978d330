"""A running gateway, as those see it who measure its links."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from muster.common.rates.recording import Direction
from muster.emulator.gateway.config import GatewayProcess, Ports
from muster.emulator.links.shape import SharedState


class GatewayControl(Protocol):
    """The methods of a gateway's `Controller` that are used here; it keeps the lease."""

    async def stats(self, clients: Collection[str] | None = None) -> Mapping[str, Any]: ...
    async def set_shared(self, state: SharedState) -> object: ...
    async def upstream(self, address: str) -> object: ...


@dataclass(frozen=True)
class RunningGateway:
    """A running gateway whose links are measured.

    Attributes:
        config: the settings with which it was started, against which its links are measured.
    """

    config: GatewayProcess
    ports: Ports
    controller: GatewayControl

    @property
    def group(self) -> str:
        return self.config.group

    def shared_bps(self, direction: Direction) -> float | None:
        """The rate that its devices share, bits per second; None: no limit."""
        shared = self.config.shared
        return shared.up_bps if direction == "up" else shared.down_bps

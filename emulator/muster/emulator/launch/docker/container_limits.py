"""The resources that the containers of a fleet may use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.client.life.device_settings import DEVICES

CPU_PERIOD_US: Final = 100_000
"""Microseconds of the period in which a container may use its quota of cores."""

_MEBI: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that a container may use.

    Attributes:
        cpus: number of cores.
        processes: number of processes and threads.
    """

    cpus: float
    memory_bytes: int
    processes: int

    def times(self, n: int) -> "Limits":
        """The limits of n devices together."""
        return Limits(n * self.cpus, n * self.memory_bytes, n * self.processes)


DEVICE_LIMITS: Final[Mapping[str, Limits]] = {
    "phone": Limits(1.0, 1024 * _MEBI, 128),
    "tablet": Limits(1.0, 1536 * _MEBI, 128),
    "gateway": Limits(1.0, 1024 * _MEBI, 128),
    "silo": Limits(4.0, 8192 * _MEBI, 512),
    "always-on": Limits(2.0, 4096 * _MEBI, 256),
}
"""Limits of one device by its profile. torch alone takes some 300 MiB. Like the profiles, these
limits are assumptions."""


def device_limits(profile: str) -> Limits:
    """Limits of one device: those of the profile that its profile varies."""
    return DEVICE_LIMITS[DEVICES[profile].base]


SERVER_LIMITS: Final = Limits(4.0, 8192 * _MEBI, 512)
GATEWAY_LIMITS: Final = Limits(2.0, 1024 * _MEBI, 64)
MONITORING_LIMITS: Final = Limits(2.0, 1024 * _MEBI, 256)

LOG_DRIVER: Final = "json-file"
LOG_OPTIONS: Final[Mapping[str, str]] = {"max-size": "32m", "max-file": "2"}
"""Docker keeps the newest output of a container, so that no program fills the disk with it."""

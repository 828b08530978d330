"""The `[groups.link]` and `[groups.shared_link]` tables of a scenario: settings and presets."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from muster.common import seeds
from muster.common.bounds import DeviceCount
from muster.common.compression import AnyCodec, Whole
from muster.common.config import Section
from muster.common.lines import Overflow, SharedLine
from muster.common.units import Bandwidth, Duration
from muster.emulator.links.mahimahi import read_mahimahi
from muster.emulator.links.shape import Shape

Profile = Literal["none", "unshaped", "edge", "3g", "4g", "5g", "wifi", "fixed", "leo", "geo"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # WebPageTest's "Edge", which is also the average of Facebook's ATC.
    "edge": {"down": "240 kbit/s", "up": "200 kbit/s", "rtt": "840 ms", "jitter": "80 ms",
             "fading": 0.5},
    # WebPageTest's "3G"; fading from the Mahimahi trace TMobile-UMTS-driving.
    "3g": {"down": "1.6 Mbit/s", "up": "750 kbit/s", "rtt": "300 ms", "jitter": "50 ms",
           "fading": 0.7},
    # WebPageTest's "LTE" down; up and fading from Mahimahi's LTE traces.
    "4g": {"down": "12 Mbit/s", "up": "6 Mbit/s", "rtt": "70 ms", "jitter": "15 ms",
           "fading": 0.55},
    # Ookla's medians of 2021, rounded; round trip and fading are assumptions.
    "5g": {"down": "150 Mbit/s", "up": "20 Mbit/s", "rtt": "30 ms", "jitter": "8 ms",
           "fading": 0.6},
    # FLASH's phones (speed_distri.json), medians and variation; the round trip is an assumption.
    "wifi": {"down": "35 Mbit/s", "up": "27 Mbit/s", "rtt": "20 ms", "jitter": "5 ms",
             "fading": 0.36},
    # Ookla's fixed broadband, global, December 2025; fading is an assumption.
    "fixed": {"down": "120 Mbit/s", "up": "60 Mbit/s", "rtt": "10 ms", "jitter": "2 ms",
              "fading": 0.15},
    # Round trip: UCLouvain/APNIC 2022; steps of 15 s: arXiv:2310.09242; rates are assumptions.
    "leo": {"down": "100 Mbit/s", "up": "12 Mbit/s", "rtt": "50 ms", "jitter": "15 ms",
            "fading": 0.4, "fading_time": "15 s", "fading_step": "15 s"},
    # All assumptions, by plans that are sold.
    "geo": {"down": "20 Mbit/s", "up": "3 Mbit/s", "rtt": "600 ms", "jitter": "20 ms",
            "fading": 0.3},
}  # fmt: skip
"""Presets of each profile; a scenario can override every one of them. `rtt` is the time there and
back. Presets of the same names elsewhere differ by a factor of two where one-way delays were copied
as round trips."""


LEAST_BPS = 1e3

LinkRate = Annotated[Bandwidth, Field(ge=LEAST_BPS, le=1e12)]
"""Rate of a link. At the lower bound of 1 kbit/s a device still enrolls in some seconds, but takes
minutes for a small model."""

Delay = Annotated[Duration, Field(ge=0, le=30)]
"""Delay of a link. With 60 s gRPC gives up a connection before it is established; with the upper
bound of 30 s it is established."""


class LinkSettings(Section):
    """Link of each device of a group to the server."""

    profile: Profile = "none"
    """Presets of the settings below. With `none`, devices connect to the server directly, which
    costs nothing. With `unshaped`, they connect through a gateway that passes everything on but
    can cut connections."""

    down: LinkRate | None = None
    """Rate towards the device; absent: no limit."""

    up: LinkRate | None = None
    """Rate from the device; absent: no limit."""

    rtt: Delay = 0.0
    """Round-trip time that is added to a small message, half of it in each direction."""

    jitter: Delay = 0.0
    """Standard deviation of a normal random number that is added to the delay in each direction. A
    negative number counts as 0, and bytes never overtake each other."""

    fading: Annotated[float, Field(ge=0, le=2)] = 0.0
    """σ of the log-normal variation of both rates over time, m·exp(σX − σ²/2), where m is the mean
    rate and X is an AR(1) process. For a coefficient of variation CV, σ = √ln(1 + CV²)."""

    fading_time: Annotated[Duration, Field(ge=0.01, le=1e6)] = 8.0
    """Time constant of the process X; 5 to 12 s in Mahimahi's cellular traces."""

    fading_step: Annotated[Duration, Field(ge=0.05, le=1e6)] = 0.25
    """How long a rate stays constant; the path of a low-orbit satellite changes every 15 s."""

    loss: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of packets that are lost. Because a TCP proxy cannot drop packets, the gateway emulates
    the throughput of a TCP connection under such loss (Padhye, Firoiu, Towsley, Kurose, SIGCOMM
    1998)."""

    spread: Annotated[float, Field(ge=0, le=2)] = 0.0
    """σ of a log-normal factor of both rates with median 1, drawn once for every device."""

    trace: str | None = None
    """A file in Mahimahi's format that replaces the rate towards the devices. Each line is a
    millisecond at which 1500 bytes may pass. The trace repeats after its end."""

    trace_up: str | None = None
    """A file in the same format that replaces the rate from the devices."""

    trace_start: Literal["random", "common"] = "random"
    """Where in its traces each device begins. random: at an instant of its own, drawn once and the
    same in both directions. common: all begin together, like passengers of one train, so that they
    fade together."""

    compression: AnyCodec = Whole(kind="none")
    """Compression of updates: none, float16, int8 or top-k, with the settings of each."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        """Add the profile's presets to the given values, which take precedence."""
        if not isinstance(values, Mapping):
            return values
        return {**PRESETS.get(str(values.get("profile", "none")), {}), **values}

    @model_validator(mode="after")
    def _traces_can_be_read(self) -> Self:
        for key, path in (("trace", self.trace), ("trace_up", self.trace_up)):
            if path is not None:
                try:
                    read_mahimahi(Path(path))
                except ValueError as error:
                    raise ValueError(f"{key}: {error}") from None
        return self

    @model_validator(mode="after")
    def _traces_are_fast_enough(self) -> Self:
        for key, path in (("trace", self.trace), ("trace_up", self.trace_up)):
            if path is not None and (bps := 8 * read_mahimahi(Path(path)).mean) < LEAST_BPS:
                raise ValueError(
                    f"{key}: {path} carries {bps:.3g} bit/s in the mean, expected at least "
                    f"{LEAST_BPS:g} bit/s, as for every link; take another trace"
                )
        return self

    @property
    def longest_gap_s(self) -> float:
        """The longest time for which a trace lets nothing pass."""
        paths = [Path(path) for path in (self.trace, self.trace_up) if path is not None]
        return max((read_mahimahi(path).gap_s for path in paths), default=0.0)

    @property
    def shapes(self) -> bool:
        """Whether the link delays or limits anything."""
        return bool(self.down or self.up or self.rtt or self.trace or self.trace_up or self.loss)

    @property
    def gateway(self) -> bool:
        """Whether the link needs a gateway."""
        return self.profile != "none" or self.shapes

    def shape_of(self, seed: int, client: str) -> Shape:
        """The shape of one device's link."""
        factor = math.exp(self.spread * float(seeds.stream(seed, "link", client).standard_normal()))
        return Shape(
            down_bps=None if self.down is None else self.down * factor,
            up_bps=None if self.up is None else self.up * factor,
            rtt_s=self.rtt,
            jitter_s=self.jitter,
            fading=self.fading,
            fading_time_s=self.fading_time,
            fading_step_s=self.fading_step,
            loss=self.loss,
            trace_down=self.trace,
            trace_up=self.trace_up,
            trace_start_s=self._trace_start_s(seed, client),
        )

    def _trace_start_s(self, seed: int, client: str) -> float:
        """An instant of the longer trace, so that a recording of both directions stays in step."""
        paths = [Path(path) for path in (self.trace, self.trace_up) if path is not None]
        if not paths or self.trace_start == "common":
            return 0.0
        longest_s = max(read_mahimahi(path).period_s for path in paths)
        return longest_s * float(seeds.stream(seed, "trace", client).random())


class SharedLink(Section):
    """Link that all devices of a group share."""

    down: LinkRate | None = None
    """Rate towards all devices of the group together; absent: no limit."""

    up: LinkRate | None = None
    """Rate from all devices of the group together; absent: no limit."""

    slots: DeviceCount | None = None
    """Number of devices that can transfer in a round; absent: all. Slots need
    `clock.kind = "rounds"` or "modelled"."""

    overflow: Overflow = "queue"
    """What happens if more devices are active than there are slots. With `queue`, they transfer in
    turn. With `subset`, as many devices as there are slots are drawn at random and get through.
    With `collide`, no device gets through."""

    @property
    def gateway(self) -> bool:
        """Whether the link needs a gateway."""
        return self.down is not None or self.up is not None or self.slots is not None

    def line(self) -> SharedLine:
        """The shared link in the model."""
        return SharedLine(
            down_bps=self.down, up_bps=self.up, slots=self.slots, overflow=self.overflow
        )

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
from muster.common.lines import LinkModel, Overflow, SharedLine
from muster.common.units import Bandwidth, Duration

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
"""What a profile presets; all of it can be set beside it. Names with the same sound differ by two
elsewhere, where one-way delays were copied as round trips: `rtt` here is there and back."""


LinkRate = Annotated[Bandwidth, Field(ge=1e3, le=1e12)]
"""At 1 kbit/s a device still enrolls in some seconds, and takes minutes for a small model."""

Delay = Annotated[Duration, Field(ge=0, le=30)]
"""With a minute gRPC gives up a connection before it is there; with half of one it comes up."""


class LinkSettings(Section):
    """How each device of a group is connected."""

    profile: Profile = "none"
    """Presets of what follows. none: devices connect to the server directly, which costs nothing.
    unshaped: through a gateway that passes everything on, and can be cut."""

    down: LinkRate | None = None
    """Rate towards the device; absent: no limit."""

    up: LinkRate | None = None
    """Rate from the device; absent: no limit."""

    rtt: Delay = 0.0
    """Added to a small message there and back, half on each way."""

    jitter: Delay = 0.0
    """Standard deviation of what is added to the delay of each way, a normal number that is never
    below 0 and never lets bytes overtake each other."""

    fading: Annotated[float, Field(ge=0, le=2)] = 0.0
    """σ of the rates' log-normal variation, mean 1, in time: m·exp(σX − σ²/2) with X an AR(1)
    process. σ = √ln(1 + CV²)."""

    fading_time: Annotated[Duration, Field(ge=0.01, le=1e6)] = 8.0
    """Time constant of that process; 5 to 12 s in Mahimahi's cellular traces."""

    fading_step: Annotated[Duration, Field(ge=0.05, le=1e6)] = 0.25
    """How long a rate holds; a low-orbit satellite's path changes every 15 s."""

    loss: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of packets lost. A proxy of TCP cannot drop packets: what a TCP connection gets under
    such loss is emulated (Padhye, Firoiu, Towsley, Kurose, SIGCOMM 1998)."""

    spread: Annotated[float, Field(ge=0, le=2)] = 0.0
    """σ of a log-normal factor of both rates, median 1, drawn once for every device."""

    trace: str | None = None
    """A file in Mahimahi's format that replaces the rate towards the devices: a line for each
    millisecond at which 1500 bytes may pass; it begins again at its end."""

    trace_up: str | None = None
    """Likewise for the rate from the devices."""

    compression: AnyCodec = Whole(kind="none")
    """How updates travel: none, float16, int8 or top-k, with the settings of each."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        """Put the profile's presets under what is given."""
        if not isinstance(values, Mapping):
            return values
        return {**PRESETS.get(str(values.get("profile", "none")), {}), **values}

    @model_validator(mode="after")
    def _traces_can_be_read(self) -> Self:
        for key, path in (("trace", self.trace), ("trace_up", self.trace_up)):
            if path is not None:
                from muster.emulator.gateway.rates import read_mahimahi

                try:
                    read_mahimahi(Path(path))
                except ValueError as error:
                    raise ValueError(f"{key}: {error}") from None
        return self

    @property
    def shapes(self) -> bool:
        """Whether it delays or limits anything."""
        return bool(self.down or self.up or self.rtt or self.trace or self.trace_up or self.loss)

    @property
    def gateway(self) -> bool:
        """Whether it needs a gateway."""
        return self.profile != "none" or self.shapes

    def shape_of(self, seed: int, client: str) -> "Shape":
        """The link of one device."""
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
        )


class SharedLink(Section):
    """What all devices of a group share."""

    down: LinkRate | None = None
    """Rate towards all devices of the group together; absent: no limit."""

    up: LinkRate | None = None
    """Rate from all devices of the group together; absent: no limit."""

    slots: DeviceCount | None = None
    """Devices that can transfer in a round; absent: all. Slots need lockstep."""

    overflow: Overflow = "queue"
    """What becomes of more active devices than slots. queue: they transfer in turn. subset: as many
    as there are slots get through, drawn. collide: nobody does."""

    @property
    def gateway(self) -> bool:
        """Whether it needs a gateway."""
        return self.down is not None or self.up is not None or self.slots is not None

    def line(self) -> SharedLine:
        """As the model sees it."""
        return SharedLine(
            down_bps=self.down, up_bps=self.up, slots=self.slots, overflow=self.overflow
        )


class Shape(Section):
    """The link of one device, as its gateway emulates it; every setting in SI units."""

    down_bps: float | None = None
    up_bps: float | None = None
    rtt_s: float = 0.0
    jitter_s: float = 0.0
    fading: float = 0.0
    fading_time_s: float = 8.0
    fading_step_s: float = 0.25
    loss: float = 0.0
    trace_down: str | None = None
    trace_up: str | None = None

    def line(self) -> LinkModel:
        """As the model sees it: mean rates, with what loss leaves of them."""
        from muster.emulator.gateway.rates import mean_bps

        return LinkModel(
            down_bps=mean_bps(self, "down"), up_bps=mean_bps(self, "up"), rtt_s=self.rtt_s
        )

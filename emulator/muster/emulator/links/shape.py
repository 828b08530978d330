"""The link of one device, with every setting in SI units."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from muster.common.config import Section
from muster.common.jitter import JitterDistribution
from muster.common.lines import Positive
from muster.common.rates.over_time import RateOverTime
from muster.common.rates.reading import read_rate
from muster.common.rates.recording import DIRECTIONS, Direction

NotNegative = Annotated[float, Field(ge=0)]

LossShare = Annotated[float, Field(ge=0, le=0.5)]

Queueing = Literal["fair", "fifo"]


class SharedState(Section):
    """What holds on a shared link, beside its settings."""

    limited: bool = True
    """Whether it and its cells have their limits."""

    down_factor: Positive = 1.0
    up_factor: Positive = 1.0
    """What its rates are multiplied by, without those of its cells."""

    most_down_bps: Positive | None = None
    most_up_bps: Positive | None = None
    """Its rates are never faster than this."""

    def of(self, direction: Direction) -> tuple[float, float | None]:
        """The factor and the most of a direction."""
        if direction == "down":
            return self.down_factor, self.most_down_bps
        return self.up_factor, self.most_up_bps


class Shape(Section):
    """The link of one device as its gateway emulates it, with every setting in SI units."""

    down_bps: Positive | None = None
    up_bps: Positive | None = None
    rtt_s: NotNegative = 0.0
    skew_s: float = 0.0
    """By how much the delay from the device is longer than the delay towards it."""

    jitter_s: NotNegative = 0.0
    jitter_distribution: JitterDistribution = "late"
    fading: Annotated[float, Field(ge=0, le=2)] = 0.0
    fading_time_s: Positive = 8.0
    fading_step_s: Annotated[float, Field(ge=0.05)] = 0.25
    loss: LossShare = 0.0
    loss_down: LossShare | None = None
    loss_up: LossShare | None = None
    """The loss of a direction; None: `loss`."""

    loss_burst: Annotated[float, Field(ge=1)] = 1.0
    """Mean number of packets that are lost in a row; at least that of independent losses counts."""

    queue_down_bytes: Positive | None = None
    queue_up_bytes: Positive | None = None
    queueing: Queueing = "fair"
    initial_window: Positive | None = None
    """Packets of the first round trip of a connection; None: there is no slow start."""

    handover_time_s: Positive | None = None
    """Mean seconds between two handovers; None: there are none."""

    handover_gap_s: NotNegative = 0.0
    trace_down: str | None = None
    trace_up: str | None = None
    trace_format: str | None = None
    trace_start_s: NotNegative = 0.0
    """Where in its traces the device begins when the gateway begins."""

    cell: str | None = None
    """The cell of the group's shared link that the device is in."""

    trace_down_factor: Positive = 1.0
    trace_up_factor: Positive = 1.0
    """What the rates of the traces are multiplied by."""

    most_down_bps: Positive | None = None
    most_up_bps: Positive | None = None
    """The rates are never faster than this, whatever else they are."""

    def bps(self, direction: Direction) -> float | None:
        """The constant or mean rate that a trace would replace; None: no limit."""
        return self.down_bps if direction == "down" else self.up_bps

    def delay_s(self, direction: Direction) -> float:
        """The delay of a direction, without jitter."""
        longer_s = self.skew_s if direction == "up" else -self.skew_s
        return max(0.0, (self.rtt_s + longer_s) / 2)

    def loss_of(self, direction: Direction) -> float:
        """The share of packets that are lost in a direction."""
        own = self.loss_down if direction == "down" else self.loss_up
        return self.loss if own is None else own

    @property
    def loses(self) -> bool:
        """Whether packets are lost in any direction."""
        return any(map(self.loss_of, DIRECTIONS))

    def queue_bytes(self, direction: Direction) -> float | None:
        """The length of the queue before the link; None: what muster takes."""
        return self.queue_down_bytes if direction == "down" else self.queue_up_bytes

    @property
    def handover_share(self) -> float:
        """The part of the time in which handovers let nothing pass."""
        if self.handover_time_s is None:
            return 0.0
        return self.handover_gap_s / (self.handover_time_s + self.handover_gap_s)

    def trace(self, direction: Direction) -> RateOverTime | None:
        """The recorded rate; None: there is no trace.

        Raises:
            ValueError: the trace cannot be read.
        """
        path = self.trace_down if direction == "down" else self.trace_up
        return None if path is None else read_rate(Path(path), direction, self.trace_format)

    def trace_files(self) -> Iterator[str]:
        """Yield the files of its traces."""
        yield from dict.fromkeys(each for each in (self.trace_down, self.trace_up) if each)

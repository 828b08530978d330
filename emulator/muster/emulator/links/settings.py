"""The `[groups.link]` table of a scenario: settings and presets."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializeAsAny,
    model_validator,
)

from muster.common import seeds
from muster.common.catalogue import read_catalogue, require_known
from muster.common.compression import AnyCodec, Whole
from muster.common.config import Section
from muster.common.distributions import (
    Distribution,
    File,
    draw_for_devices,
    parse_path,
    parse_words,
)
from muster.common.jitter import JitterDistribution
from muster.common.per_device import PerDevice
from muster.common.rates.reading import FORMATS, read_rate
from muster.common.rates.recording import DIRECTIONS, Direction
from muster.common.units import DURATIONS, RATES, SIZES, Bandwidth
from muster.emulator.links.shape import Queueing, Shape
from muster.emulator.links.traces import TRACES, files_of, files_of_devices, require_usable

LINKS = read_catalogue(Path(__file__).with_name("links.toml"))
"""The profiles that preset something, by name."""

_PROFILES = ("none", "unshaped", *LINKS)

Profile = Annotated[
    str, AfterValidator(lambda name: require_known(name, _PROFILES, "links")), Field(max_length=100)
]


Seconds = float | list[float]
"""Of all devices, or of each."""

LEAST_BPS = 1e3

RATE = PerDevice(LEAST_BPS, 1e12, RATES)
"""At the lower bound of 1 kbit/s a device still enrolls in some seconds, but takes minutes for a
small model."""

DELAY = PerDevice(0, 30, DURATIONS)
"""With 60 s gRPC gives up a connection before it is established; with the upper bound of 30 s it is
established."""

DEVIATION, SHARE = PerDevice(0, 2), PerDevice(0, 0.5)
FADING_TIME, FADING_STEP = PerDevice(0.01, 1e6, DURATIONS), PerDevice(0.05, 1e6, DURATIONS)
START = PerDevice(0, 1e9, DURATIONS)

RUN = PerDevice(1, 100)
"""Packets that are lost in a row. A longer silence is an outage, and has faults of its own."""

QUEUE = PerDevice(1500, 1e8, SIZES)
WINDOW = PerDevice(1, 10_000)
HANDOVER_TIME = PerDevice(1, 1e9, DURATIONS)


def _known_format(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"expected one of {', '.join(FORMATS)}; found {name!r}")
    return name


LinkRate = Annotated[Bandwidth, Field(ge=LEAST_BPS, le=1e12)]
AnyRate = Annotated[Annotated[float, *RATE.number] | SerializeAsAny[Distribution], *RATE.marks]
AnyDelay = Annotated[Annotated[float, *DELAY.number] | SerializeAsAny[Distribution], *DELAY.marks]
AnyQueue = Annotated[Annotated[float, *QUEUE.number] | SerializeAsAny[Distribution], *QUEUE.marks]
AnyLoss = Annotated[Annotated[float, *SHARE.number] | SerializeAsAny[Distribution], *SHARE.marks]
RecordingFormat = Annotated[str, AfterValidator(_known_format)]
AnyTrace = Annotated[str | File, BeforeValidator(parse_path)]


AnyWord = Annotated[str | SerializeAsAny[Distribution], BeforeValidator(parse_words)]


def _parse_start(value: object) -> object:
    return value if value in ("random", "common") else START.read(value)


class LinkSettings(Section):
    """Link of each device of a group to the server."""

    profile: Profile = "none"
    """Presets of the settings below, by name ([profiles](#link-profiles)). With `none`, devices
    connect to the server directly, which costs nothing. With `unshaped`, they connect through a
    gateway that passes everything on but can cut connections."""

    down: AnyRate | None = None
    """Rate towards the device; absent: no limit."""

    up: AnyRate | None = None
    """Rate from the device; absent: no limit."""

    rtt: AnyDelay = 0.0
    """Round-trip time that is added to a small message, half of it in each direction."""

    delay_down: AnyDelay | None = None
    """Delay towards the device, one way; absent: half of `rtt`."""

    delay_up: AnyDelay | None = None
    """Delay from the device, one way; absent: half of `rtt`."""

    jitter: AnyDelay = 0.0
    """Standard deviation of a random number that is added to the delay in each direction. Bytes
    never overtake each other."""

    jitter_distribution: JitterDistribution = "late"
    """Distribution of that number. late: normal, but a negative number counts as 0. normal,
    uniform: around the delay, which is then the mean. pareto: also around the delay, often a
    little early, and seldom very late. No delay is less than 0."""

    fading: Annotated[
        Annotated[float, *DEVIATION.number] | SerializeAsAny[Distribution], *DEVIATION.marks
    ] = 0.0
    """σ of the log-normal variation of both rates over time, m·exp(σX − σ²/2), where m is the mean
    rate and X is an AR(1) process. For a coefficient of variation CV, σ = √ln(1 + CV²)."""

    fading_time: Annotated[
        Annotated[float, *FADING_TIME.number] | SerializeAsAny[Distribution], *FADING_TIME.marks
    ] = 8.0
    """Time constant of the process X; 5 to 12 s in Mahimahi's cellular traces."""

    fading_step: Annotated[
        Annotated[float, *FADING_STEP.number] | SerializeAsAny[Distribution], *FADING_STEP.marks
    ] = 0.25
    """How long a rate stays constant; the path of a low-orbit satellite changes every 15 s."""

    loss: Annotated[
        Annotated[float, *SHARE.number] | SerializeAsAny[Distribution], *SHARE.marks
    ] = 0.0
    """Share of packets that are lost. Because a TCP proxy cannot drop packets, the gateway emulates
    the throughput of a TCP connection under such loss (Padhye, Firoiu, Towsley, Kurose, SIGCOMM
    1998)."""

    loss_down: AnyLoss | None = None
    """Share of packets that are lost towards the device; absent: `loss`."""

    loss_up: AnyLoss | None = None
    """Share of packets that are lost from the device; absent: `loss`."""

    loss_burst: Annotated[
        Annotated[float, *RUN.number] | SerializeAsAny[Distribution], *RUN.marks
    ] = 1.0
    """Mean number of packets that are lost in a row (the model of Gilbert and Elliott); 1: they are
    lost independently of each other."""

    queue_down: AnyQueue | None = None
    """Length of the queue before the link towards the device, which a transfer fills; absent: what
    passes in 50 ms, and at least 16 KiB. It holds at least 40 ms, or 32 KiB."""

    queue_up: AnyQueue | None = None
    """Length of the queue before the link from the device."""

    queueing: Queueing = "fair"
    """fair: each connection of the device has a queue of its own, so that a message waits for no
    transfer of another connection. fifo: all wait in one queue, for queue / rate if it is full
    (bufferbloat)."""

    initial_window: (
        Annotated[Annotated[float, *WINDOW.number] | SerializeAsAny[Distribution], *WINDOW.marks]
        | None
    ) = None
    """Packets of 1460 bytes that a connection sends in its first round trip after a pause, and
    twice as many in each one that follows (slow start; 10 in RFC 6928). Absent: as many as the link
    carries."""

    handover_time: (
        Annotated[
            Annotated[float, *HANDOVER_TIME.number] | SerializeAsAny[Distribution],
            *HANDOVER_TIME.marks,
        ]
        | None
    ) = None
    """Mean time between two handovers of the device from cell to cell, which come at random."""

    handover_gap: AnyDelay = 0.0
    """Time for which a handover lets nothing pass, in both directions."""

    spread: Annotated[float, Field(ge=0, le=2)] = 0.0
    """σ of a log-normal factor of both rates with median 1, drawn once for every device."""

    trace: AnyTrace | None = None
    """A recording that replaces the rate towards the devices, and repeats after its end. A folder
    or a pattern (`"drives/*.csv"`) stands for all its files, of which each device draws one. Paths
    in a column of a file are relative to that file."""

    trace_up: AnyTrace | None = None
    """A recording that replaces the rate from the devices. If it stands for several files, there
    are as many as for `trace`, and a device gets those at the same place in both."""

    trace_format: RecordingFormat | None = None
    """Format of the recordings; absent: found by their content."""

    trace_start: Annotated[
        Literal["random", "common"]
        | Annotated[float, *START.number]
        | SerializeAsAny[Distribution],
        START,
        BeforeValidator(_parse_start),
        PlainSerializer(lambda start: start if isinstance(start, str) else START.write(start)),
    ] = "random"
    """Where in its traces each device begins. random: at an instant of its own, drawn once and the
    same in both directions. common: all begin together, like passengers of one train, so that they
    fade together. A duration or a distribution: so long after the beginning of the trace."""

    cell: AnyWord | None = None
    """The cell of the shared link that the device is in (`shared_link.cells`); absent: none, so
    that only the shared link itself is between the device and the server."""

    compression: AnyCodec = Whole(kind="none")
    """Compression of updates: none, float16, int8 or top-k, with the settings of each."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: object) -> object:
        """Add the profile's presets to the given values, which take precedence."""
        if not isinstance(values, Mapping):
            return values
        preset = LINKS.get(str(values.get("profile")))
        return values if preset is None else {**preset.values, **values}

    @model_validator(mode="after")
    def _handovers_are_complete(self) -> Self:
        if (self.handover_time is not None) != bool(self.handover_gap):
            missing = "handover_gap" if self.handover_time is not None else "handover_time"
            raise ValueError(f"{missing}: expected both handover_time and handover_gap, or neither")
        return self

    @model_validator(mode="after")
    def _has_what_begins(self) -> Self:
        given = "trace_start" in self.model_fields_set and self.trace_start != "random"
        if given and self.trace is None and self.trace_up is None:
            raise ValueError(
                "trace_start: expected a recording, `trace` or `trace_up`, found none; a shared "
                "link has a trace_start of its own"
            )
        return self

    @model_validator(mode="after")
    def _traces_can_be_used(self) -> Self:
        numbers = {}
        for key, direction in TRACES.items():
            if isinstance(text := getattr(self, key), str):
                self._require_usable(key, text, direction)
                numbers[key] = len(files_of(text))
        if len({*numbers.values(), 1}) > 2:
            raise ValueError(
                f"trace_up: {self.trace_up} has {numbers['trace_up']} files, but {self.trace} has "
                f"{numbers['trace']}; expected as many, or a single one"
            )
        return self

    def _require_usable(self, key: str, text: str, direction: Direction) -> None:
        with _naming(key):
            require_usable(text, direction, self.trace_format, LEAST_BPS)

    @property
    def shapes(self) -> bool:
        """Whether the link delays or limits anything."""
        return any(
            (
                *(self.down, self.up, self.trace, self.trace_up, self.handover_gap),
                *(self.loss, self.loss_down, self.loss_up),
                *(self.rtt, self.delay_down, self.delay_up, self.jitter),
            )
        )

    @property
    def has_rates(self) -> bool:
        """Whether a rate is set or recorded, in either direction."""
        return any(each is not None for each in (self.up, self.down, self.trace, self.trace_up))

    @property
    def gateway(self) -> bool:
        """Whether the link needs a gateway."""
        return self.profile != "none" or self.shapes

    def shapes_of(
        self, seed: int, clients: Sequence[str], positions: Sequence[int]
    ) -> Sequence[Shape]:
        """The shapes of the links of some devices.

        The shape of a device does not depend on other devices. This is the only place where the
        settings become those of a device.

        Args:
            positions: positions of the devices in the population, from 0.

        Raises:
            ValueError: a value to look up is missing or cannot be used; the message begins with its
                key.
        """
        columns = self.columns_of(seed, clients, positions)
        varying = {key: values for key, values in columns.items() if isinstance(values, list)}
        same = {key: value for key, value in columns.items() if key not in varying}
        if not varying:
            return [Shape(**same)] * len(clients)
        rows = zip(*varying.values(), strict=True)
        return [Shape(**same, **dict(zip(varying, row, strict=True))) for row in rows]

    def columns_of(
        self, seed: int, clients: Sequence[str], positions: Sequence[int]
    ) -> Mapping[str, Any]:
        """The fields of the devices' shapes: for each field a list of values, or one value that all
        have.

        Args, Raises: as for `shapes_of`.
        """
        columns: dict[str, Any] = {}
        who = seed, clients, positions
        for field, key, kind in NUMBERS:
            setting = getattr(self, key)
            if not isinstance(setting, Distribution):
                columns[field] = setting
                continue
            with _naming(key):
                columns[field] = kind.draw(setting, *who, "link", key).tolist()
        columns |= _sum_and_skew(columns.pop("delay_down_s"), columns.pop("delay_up_s"), columns)
        columns["jitter_distribution"] = self.jitter_distribution
        columns["queueing"] = self.queueing
        for key, direction in TRACES.items():
            columns[f"trace_{direction}"] = self._paths(key, direction, *who)
        columns["trace_format"] = self.trace_format
        columns["cell"] = self.cell
        if isinstance(self.cell, Distribution):
            with _naming("cell"):
                cells = draw_for_devices(self.cell, *who, "link", "cell").tolist()
            columns["cell"] = list(map(str, cells))
        columns["trace_start_s"] = self._starts_s(columns, *who)
        if self.spread and self.has_rates:
            normal = [float(seeds.stream(seed, "link", each).standard_normal()) for each in clients]
            factors = [math.exp(self.spread * number) for number in normal]
            for field in ("down_bps", "up_bps"):
                columns[field] = _product(columns[field], factors)
        return columns

    def _paths(
        self,
        key: str,
        direction: Direction,
        seed: int,
        clients: Sequence[str],
        positions: Sequence[int],
    ) -> str | list[str] | None:
        setting: str | File | None = getattr(self, key)
        if setting is None:
            return None
        if isinstance(setting, str):
            with _naming(key):
                return files_of_devices(setting, seed, clients)
        with _naming(key):
            names = draw_for_devices(setting, seed, clients, positions, "link", key).tolist()
        folder = Path(setting.path).parent
        paths = {name: str(folder / str(name)) for name in dict.fromkeys(names)}
        for path in paths.values():
            self._require_usable(key, path, direction)
        return [paths[name] for name in names]

    def _starts_s(
        self,
        columns: Mapping[str, Any],
        seed: int,
        clients: Sequence[str],
        positions: Sequence[int],
    ) -> float | list[float]:
        """Where in its traces each device begins; a random instant is one of the longer trace, so
        that a recording of both directions stays in step."""
        if self.trace_start == "common" or (self.trace is None and self.trace_up is None):
            return 0.0
        if self.trace_start != "random":
            with _naming("trace_start"):
                purpose = "link", "trace_start"
                found = START.draw(self.trace_start, seed, clients, positions, *purpose)
            return list(map(float, found))
        of_device = [
            self._periods_s(columns[f"trace_{direction}"], direction, len(clients))
            for direction in DIRECTIONS
        ]
        return [
            float(seeds.stream(seed, "trace", client).random()) * max(periods_s)
            for client, *periods_s in zip(clients, *of_device, strict=True)
        ]

    def _periods_s(
        self, paths: str | list[str] | None, direction: Direction, devices: int
    ) -> Iterable[float]:
        """The period of each device's trace in a direction; 0 without a trace."""
        if paths is None:
            return repeat(0.0, devices)
        known = {
            path: read_rate(Path(path), direction, self.trace_format).period_s
            for path in ({paths} if isinstance(paths, str) else set(paths))
        }
        of_device = repeat(paths, devices) if isinstance(paths, str) else paths
        return [known[path] for path in of_device]


NUMBERS = (
    ("down_bps", "down", RATE),
    ("up_bps", "up", RATE),
    ("rtt_s", "rtt", DELAY),
    ("delay_down_s", "delay_down", DELAY),
    ("delay_up_s", "delay_up", DELAY),
    ("jitter_s", "jitter", DELAY),
    ("fading", "fading", DEVIATION),
    ("fading_time_s", "fading_time", FADING_TIME),
    ("fading_step_s", "fading_step", FADING_STEP),
    ("loss", "loss", SHARE),
    ("loss_down", "loss_down", SHARE),
    ("loss_up", "loss_up", SHARE),
    ("loss_burst", "loss_burst", RUN),
    ("queue_down_bytes", "queue_down", QUEUE),
    ("queue_up_bytes", "queue_up", QUEUE),
    ("initial_window", "initial_window", WINDOW),
    ("handover_time_s", "handover_time", HANDOVER_TIME),
    ("handover_gap_s", "handover_gap", DELAY),
)
"""The fields of a shape, with the key of each and what it can be. The two delays become the round
trip and its skew."""


def _sum_and_skew(
    down_s: Seconds | None, up_s: Seconds | None, columns: Mapping[str, Any]
) -> dict[str, Seconds]:
    """The round trips of the devices and their skews, from the delays that are set."""
    if down_s is None and up_s is None:
        return {}
    half_s = np.asarray(columns["rtt_s"]) / 2
    down, up = (half_s if each is None else np.asarray(each) for each in (down_s, up_s))
    return {"rtt_s": (down + up).tolist(), "skew_s": (up - down).tolist()}


def _product(bps: float | list[float] | None, factors: Sequence[float]) -> list[float] | None:
    if bps is None:
        return None
    rates = bps if isinstance(bps, list) else repeat(bps, len(factors))
    return [rate * factor for rate, factor in zip(rates, factors, strict=True)]


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Name the key of what cannot be used."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None

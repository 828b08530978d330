"""The `[groups.shared_link]` table of a scenario."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from muster.common import seeds
from muster.common.bounds import DeviceCount, Name
from muster.common.config import Section
from muster.common.errors import listed
from muster.common.lines import LineTrace
from muster.common.rates.cross_traffic import TrafficLoad
from muster.common.rates.reading import read_rate
from muster.common.rates.recording import DIRECTIONS, Direction
from muster.common.shared_lines import Cell, Overflow, SharedLine
from muster.common.units import Duration, Size
from muster.emulator.links.settings import LEAST_BPS, LinkRate, RecordingFormat
from muster.emulator.links.traces import TRACES

LoadTime = Annotated[Duration, Field(ge=0.01, le=1e6)]
TraceStart = Annotated[Duration, Field(ge=0, le=1e9)]
QueueLength = Annotated[Size, Field(ge=1500, le=1e8)]


def _one_file(text: str) -> str:
    if not Path(text).is_file():
        raise ValueError(f"expected the file of one recording, found {text!r}")
    return text


AnyRecording = Annotated[str, AfterValidator(_one_file)]


class CrossTraffic(Section):
    """Traffic of others on a shared link, which takes its rate whatever the devices do."""

    down: LinkRate | None = None
    """Its rate towards the devices while it is on; absent: none."""

    up: LinkRate | None = None
    """Its rate from the devices while it is on; absent: none."""

    on: LoadTime | None = None
    """Mean time for which it is on, before it is off for a while; both are exponential, and drawn
    from the seed. Absent: it is always on."""

    off: LoadTime | None = None
    """Mean time for which it is off."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.down is None and self.up is None:
            raise ValueError("expected a rate `down` or `up`, found neither")
        if (self.on is None) != (self.off is None):
            missing = "on" if self.on is None else "off"
            raise ValueError(f"{missing}: expected both `on` and `off`, or neither")
        return self

    def load(self, direction: Direction, seed: int, name: str) -> TrafficLoad | None:
        """Its load in a direction; None: there is none."""
        bps = self.down if direction == "down" else self.up
        if bps is None:
            return None
        return TrafficLoad(bps=bps, on_s=self.on, off_s=self.off, seed=seed, name=name)


class SharedRates(Section):
    """The rates of a link that devices share, or of a part of it."""

    down: LinkRate | None = None
    """Rate towards all devices together; absent: no limit."""

    up: LinkRate | None = None
    """Rate from all devices together; absent: no limit."""

    trace: AnyRecording | None = None
    """A recording that replaces the rate towards the devices, and repeats after its end."""

    trace_up: AnyRecording | None = None
    """A recording that replaces the rate from the devices."""

    trace_format: RecordingFormat | None = None
    """Format of the recordings; absent: found by their content."""

    trace_start: Literal["random"] | TraceStart = 0.0
    """Where in its recordings the link begins, in both directions: so long after their beginning.
    random: at an instant that is drawn from the seed and the name of the link or cell."""

    cross_traffic: Annotated[list[CrossTraffic], Field(max_length=100)] = Field(
        default_factory=list
    )
    """Traffic of others on the link ([links.md](links.md#cross-traffic))."""

    @model_validator(mode="after")
    def _has_what_begins(self) -> Self:
        if self.trace_start and self.trace is None and self.trace_up is None:
            raise ValueError("trace_start: expected a recording, `trace` or `trace_up`, found none")
        return self

    @model_validator(mode="after")
    def _something_is_left(self) -> Self:
        for key, direction in TRACES.items():
            loads = self._loads(direction, 0, "")
            if loads and self._file(direction) is None and self._bps(direction) is None:
                raise ValueError(
                    f"cross_traffic: expected a rate {direction!r} or `{key}`, of which it takes "
                    f"a part; found no limit {direction}"
                )
            named = key if self._file(direction) is not None else direction
            try:
                mean_bps = self._mean_bps(direction, 0, "")
            except ValueError as error:
                raise ValueError(f"{named}: {error}") from None
            if mean_bps is not None and mean_bps < LEAST_BPS:
                raise ValueError(
                    f"{named}: {mean_bps:.3g} bit/s are left in the mean, expected at least "
                    f"{LEAST_BPS:g} bit/s, as for every link"
                )
        return self

    @property
    def limited(self) -> bool:
        """Whether it has a rate in any direction."""
        return any(v is not None for v in (self.down, self.up, self.trace, self.trace_up))

    def _bps(self, direction: Direction) -> float | None:
        return self.down if direction == "down" else self.up

    def _file(self, direction: Direction) -> str | None:
        return self.trace if direction == "down" else self.trace_up

    def _loads(self, direction: Direction, seed: int, name: str) -> tuple[TrafficLoad, ...]:
        """The cross traffic in a direction; that of both directions is on at the same times."""
        each = (
            traffic.load(direction, seed, f"{name}/{number}")
            for number, traffic in enumerate(self.cross_traffic)
        )
        return tuple(load for load in each if load is not None)

    def _trace(self, direction: Direction, seed: int, name: str) -> LineTrace | None:
        """Its rate in a direction; None: it does not vary."""
        file, loads = self._file(direction), self._loads(direction, seed, name)
        if file is None and not loads:
            return None
        bps = self._bps(direction) if file is None else None
        form = self.trace_format if file is not None else None
        start_s = self._start_s(seed, name) if file is not None else 0.0
        return LineTrace(
            file=file, format=form, direction=direction, bps=bps, loads=loads, start_s=start_s
        )

    def _start_s(self, seed: int, name: str) -> float:
        """Where in its recordings it begins, the same in both directions."""
        if self.trace_start != "random":
            return self.trace_start
        periods_s = [
            read_rate(Path(file), each, self.trace_format).period_s
            for each in DIRECTIONS
            if (file := self._file(each)) is not None
        ]
        return float(seeds.stream(seed, "shared trace", name).random()) * max(periods_s)

    def _mean_bps(self, direction: Direction, seed: int, name: str) -> float | None:
        """Its rate in the long run.

        Raises:
            ValueError: a recording cannot be read, or cross traffic leaves nothing.
        """
        trace = self._trace(direction, seed, name)
        return self._bps(direction) if trace is None else trace.whole().mean_bps

    def rates_of(self, seed: int, name: str) -> dict[str, Any]:
        """Its rates, as the fields of SharedPart.

        Args:
            seed, name: of the streams from which cross traffic is drawn.
        """
        fields: dict[str, Any] = {}
        for each in DIRECTIONS:
            trace = self._trace(each, seed, name)
            fields[f"{each}_bps"] = self._mean_bps(each, seed, name)
            fields[f"{each}_traces"] = () if trace is None else (trace,)
        return fields


class CellSettings(SharedRates):
    """A part of a shared link that the devices with its name in `link.cell` share: a cell, a
    village, an office. Cells within cells make a tree."""

    within: str | None = None
    """The name of the cell of which it is a part; absent: it is a part of the shared link."""


class SharedLink(SharedRates):
    """Link that all devices of a group share."""

    name: Name | None = None
    """Groups whose shared links have the same name share one link. One of them describes it, the
    others have the name only ([links.md](links.md#links-of-several-groups)). Absent: only the
    devices of the group share it."""

    queue_down: QueueLength | None = None
    """Length of one queue before the link towards the devices, in which all bytes wait in the order
    in which they came (first in, first out). Absent: each device has a queue of its own, and all
    are served in turn."""

    queue_up: QueueLength | None = None
    """Length of one queue before the link from the devices."""

    cells: Annotated[dict[str, CellSettings], Field(max_length=10_000)] = Field(
        default_factory=dict
    )
    """Parts of the link that some of its devices share, by name ([links.md](links.md#cells))."""

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
        return self.limited or bool(self.cells) or self.slots is not None

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        for name, cell in self.cells.items():
            if cell.within is not None and cell.within not in self.cells:
                raise ValueError(
                    f"cells.{name}.within: there is no cell {cell.within!r}; there are: "
                    f"{listed([*self.cells])}"
                )
            above, outer = {name}, cell.within
            while outer is not None:
                if outer in above:
                    raise ValueError(
                        f"cells.{name}.within: {outer!r} is within itself; expected a tree"
                    )
                above.add(outer)
                outer = self.cells[outer].within
        if self.name is not None and self.slots is not None:
            raise ValueError("slots: a link of several groups has no slots; leave out one of them")
        if self.cells and self.slots is not None:
            raise ValueError("slots: a link with cells has no slots; leave out one of them")
        return self

    @model_validator(mode="after")
    def _queues_fit(self) -> Self:
        for trace, direction in TRACES.items():
            key = f"queue_{direction}"
            if getattr(self, key) is None:
                continue
            if self._bps(direction) is None and self._file(direction) is None:
                raise ValueError(
                    f"{key}: expected a rate `{direction}` or `{trace}` before which bytes wait, "
                    f"found no limit"
                )
            if self.cells:
                raise ValueError(f"{key}: a link with cells has no queue of all; leave out one")
        return self

    def line(self, seed: int, name: str) -> SharedLine:
        """The shared link in the model.

        Args:
            seed, name: of the streams from which cross traffic is drawn.
        """
        return SharedLine(
            name=self.name or "",
            **self.rates_of(seed, name),
            cells={
                each: Cell(**cell.rates_of(seed, f"{name}/{each}"), within=cell.within)
                for each, cell in self.cells.items()
            },
            queue_down_bytes=self.queue_down,
            queue_up_bytes=self.queue_up,
            slots=self.slots,
            overflow=self.overflow,
        )


def with_shared_links(groups: object) -> object:
    """The groups of a scenario, with the whole table of a shared link in each that names it.

    Raises:
        ValueError: groups describe the same link differently, or nobody describes it.
    """
    if not isinstance(groups, list):
        return groups
    described: dict[object, tuple[str, dict[str, Any]]] = {}
    named = set()
    for group in groups:
        table = group.get("shared_link") if isinstance(group, dict) else None
        if not isinstance(table, dict) or "name" not in table:
            continue
        name, place = str(table["name"]), str(group.get("name"))
        named.add(name)
        other, known = described.setdefault(name, (place, table)) if len(table) > 1 else ("", table)
        if known != table:
            raise ValueError(
                f"groups {other!r} and {place!r} both describe the shared link {name!r}, "
                f"differently; expected the keys in one of them, and only the name in the other"
            )
    for name in sorted(named):
        if name not in described:
            raise ValueError(
                f"no group describes the shared link {name!r}; expected its rates beside the name "
                f"in one group"
            )
        if any(isinstance(group, dict) and group.get("name") == name for group in groups):
            raise ValueError(
                f"the shared link {name!r} has the name of a group; expected another name"
            )

    def whole(group: object) -> object:
        table = group.get("shared_link") if isinstance(group, dict) else None
        if not isinstance(group, dict) or not isinstance(table, dict) or "name" not in table:
            return group
        return {**group, "shared_link": described[str(table["name"])][1]}

    return [whole(group) for group in groups]


def recordings_in(shared: object) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the tables of a shared link that may name recordings, with the keys that do."""
    if not isinstance(shared, dict):
        return
    cells = shared.get("cells")
    of_cells: Sequence[object] = [*cells.values()] if isinstance(cells, dict) else []
    for table in chain([shared], of_cells):
        if isinstance(table, dict):
            yield from ((table, key) for key in TRACES)

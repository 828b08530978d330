"""Links that are too slow for the patience of the server, so that a run would wait in vain.

The bounds of rates, sharing devices, gaps of traces and patience are wide, each by itself. Here
they are taken together: what has to pass before the server loses its patience must be able to.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from muster.common.errors import ConfigError, listed
from muster.common.rates.recording import DIRECTIONS
from muster.emulator.gateway.rates import model_of
from muster.emulator.links.shape import Shape
from muster.emulator.scenario.population import names_of
from muster.emulator.scenario.settings import Group, ScenarioSettings

_MESSAGE_BYTES = 1024
"""About what passes each way before a device is enrolled and called."""

_PIECE_BYTES = 16 << 10
"""The smallest part of a model or an update whose arrival the server notices."""

_SPREAD_SDS = 6.0
"""No device of a fleet is slower than the median by so many standard deviations."""


def slow_link_refusals(scenario: ScenarioSettings) -> Iterator[str]:
    """Yield links over which devices cannot enroll in time, one sentence each."""
    for number, waits in _waits_of(scenario, _MESSAGE_BYTES, scenario.devices):
        try:
            if reason := waits.refusal("a message"):
                yield f"groups[{number}].{reason}"
        except ValueError as error:  # a value of a device cannot be looked up
            yield f"groups[{number}].link.{error}"


def check_links(scenario: ScenarioSettings, body_bytes: int) -> None:
    """Check that every link can carry models and updates while the server waits.

    In lockstep a run fails if nothing arrives for `server.stall_s`. On other clocks rounds end by
    their deadline.

    Args:
        body_bytes: the size of a model.

    Raises:
        ConfigError: it cannot.
    """
    if scenario.clock.kind != "rounds":
        return
    piece = min(body_bytes, _PIECE_BYTES)
    for number, waits in _waits_of(scenario, piece, scenario.server.transfers):
        if reason := waits.refusal("a part of the model"):
            raise ConfigError(f"groups[{number}].{reason}")


def _waits_of(scenario: ScenarioSettings, nbytes: int, most: int) -> Iterator[tuple[int, "_Waits"]]:
    """Yield the waits of every group whose links shape anything, with its place."""
    at_gateways, first = scenario.devices_at_gateways(), 0
    for number, group in enumerate(scenario.groups):
        if group.shaped:
            at_once = min(at_gateways[group.gateway_group], most)
            yield number, _Waits(scenario, group, first, nbytes, at_once)
        first += group.count


_SLOWER_WITH_LESS = "down_bps", "up_bps", "loss_burst", "initial_window", "handover_time_s"
"""The fields of a shape of which less makes a link slower."""


class _Waits:
    """How long the devices of a group wait until so many bytes have passed.

    Args:
        first: the place of the group's first device in the population.
        at_once: the most devices that share the group's link meanwhile.
    """

    def __init__(
        self, scenario: ScenarioSettings, group: Group, first: int, nbytes: int, at_once: int
    ) -> None:
        self._seed, self._stall_s = scenario.seed, scenario.server.stall_s
        self._group, self._nbytes, self._at_once = group, nbytes, at_once
        self._line = group.shared_line(scenario.seed)
        clients = [client for client, _ in names_of([group])]
        self._devices = clients, range(first, first + group.count)

    def refusal(self, what: str) -> str | None:
        """Why the server would lose its patience; None: it would not."""
        stall = f"server.stall_s = {self._stall_s:g}"
        link = self._group.link.model_copy(update={"trace_start": "common", "spread": 0.0})
        columns = link.columns_of(self._seed, *self._devices)
        at_once = {"": self._at_once, **self._in_cells(columns["cell"])}
        limits = {
            f"{key}{way}": (at_once[cell], part.limit(way))
            for key, cell, part in (
                ("", "", self._line),
                *((f"cells.{name}.", name, cell) for name, cell in self._line.cells.items()),
            )
            for way in DIRECTIONS
        }
        for key, (n, limit) in limits.items():
            if n and (wait_s := limit.longest_s(8 * self._nbytes * n)) > self._stall_s:
                return (
                    f"shared_link.{key}: {n} devices at once need {wait_s:.3g} s for "
                    f"{what} of {self._nbytes:,} bytes each, but the server waits for {stall} "
                    f"seconds; expected a faster link, fewer devices or a longer server.stall_s"
                )
        if (wait_s := self._line.queue_s) > self._stall_s:
            return (
                f"shared_link: a message may wait {wait_s:.3g} s in the queue, but the server "
                f"waits for {stall} seconds; expected a shorter queue_down or queue_up, a faster "
                f"link or a longer server.stall_s"
            )
        wait_s = self._longest_s(columns)
        if wait_s <= self._stall_s:
            return None
        return (
            f"link: the slowest device may wait {wait_s:.3g} s for {what} of {self._nbytes:,} "
            f"bytes, but the server waits for {stall} seconds; expected a faster link, a trace "
            f"without such gaps, or a longer server.stall_s"
        )

    def _in_cells(self, cells: str | list[str] | None) -> dict[str, int]:
        """How many devices at once transfer through each cell of the shared link.

        Raises:
            ValueError: a device is in a cell that there is not, or nothing is in any.
        """
        line, clients = self._line, self._devices[0]
        of_devices = cells if isinstance(cells, list) else [cells] * len(clients)
        for client, cell in zip(clients, of_devices, strict=True):
            if cell is not None and cell not in line.cells:
                raise ValueError(
                    f"cell: {client} is in {cell!r}, but shared_link.cells has "
                    f"{listed([*line.cells])}"
                )
        counts = Counter(cell for found in of_devices for cell in line.path(found))
        if line.cells and not counts and not line.name:
            raise ValueError(
                "cell: expected the cells of the devices, because shared_link has some"
            )
        return {cell: min(counts[cell], self._at_once) for cell in line.cells}

    def _longest_s(self, columns: Mapping[str, Any]) -> float:
        # Where traces begin decides nothing here.
        link = self._group.link.model_copy(update={"trace_start": "common"})
        worst_s = max(map(self._wait_s, _worst(columns)))
        if math.exp(_SPREAD_SDS * link.spread) * worst_s <= self._stall_s:
            return worst_s
        shapes = link.shapes_of(self._seed, *self._devices)
        return max(self._wait_s(shape) for shape in {id(each): each for each in shapes}.values())

    def _wait_s(self, shape: Shape) -> float:
        """The longest time in which so many bytes pass in the slower direction."""
        line = model_of(shape)
        _, down_s = line.bounds_s(self._nbytes, 0)
        _, up_s = line.bounds_s(0, self._nbytes)
        return max(down_s, up_s) - line.rtt_s + line.queue_s + line.gap_s


def _worst(columns: Mapping[str, Any]) -> Iterator[Shape]:
    """Shapes of which one is at least as slow as that of any device."""
    worst = {
        field: (min if field in _SLOWER_WITH_LESS else max)(values)
        for field, values in columns.items()
        if isinstance(values, list) and field not in ("trace_down", "trace_up", "cell")
    }
    paths = [
        sorted(set(paths)) if isinstance(paths := columns[field], list) else [paths]
        for field in ("trace_down", "trace_up")
    ]
    for down, up in product(*paths):
        yield Shape(**{**columns, **worst, "trace_down": down, "trace_up": up, "cell": None})

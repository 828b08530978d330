"""The links that devices share, as the scenario of a run names them: of a group or of several, with
their cells."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class CellPlace(NamedTuple):
    """A cell of a shared link.

    Attributes:
        depth: 1 for a part of the link itself, 2 for a part of such a part.
    """

    name: str
    depth: int


class LinkPlace(NamedTuple):
    """The link of a group, or one that several groups share.

    Attributes:
        name: of the group or the link; the traffic in the journal has it.
        groups: the groups whose devices have it.
        cells: in the order of the tree: a cell comes before those within it.
    """

    name: str
    groups: tuple[str, ...]
    cells: tuple[CellPlace, ...]


def link_places(scenario: Mapping[str, Any]) -> tuple[LinkPlace, ...]:
    """The links of a resolved scenario, in the order of its groups."""
    found: dict[str, LinkPlace] = {}
    for group in scenario.get("groups", []):
        shared, group_name = group.get("shared_link", {}), str(group.get("name"))
        name = str(shared.get("name") or group_name)
        known = found.get(name) or LinkPlace(name, (), tuple(_tree(shared.get("cells", {}))))
        found[name] = known._replace(groups=(*known.groups, group_name))
    return tuple(found.values())


def _tree(cells: Mapping[str, Any]) -> Iterator[CellPlace]:
    """Yield the cells, each before those within it."""
    within: dict[str | None, list[str]] = {}
    for name, cell in cells.items():
        within.setdefault(cell.get("within"), []).append(name)
    open_cells = [CellPlace(name, 1) for name in reversed(within.get(None, []))]
    while open_cells:
        place = open_cells.pop()
        yield place
        inner = reversed(within.get(place.name, []))
        open_cells += [CellPlace(name, place.depth + 1) for name in inner]

"""The `[groups.shared_link]` table of a scenario."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from muster.common.bounds import DeviceCount
from muster.common.config import Section
from muster.common.errors import listed
from muster.common.lines import Cell, Overflow, SharedLine
from muster.emulator.links.settings import LinkRate


class CellSettings(Section):
    """A part of a shared link that the devices with its name in `link.cell` share: a cell, a
    village, an office. Cells within cells make a tree."""

    down: LinkRate | None = None
    """Rate towards all devices of the cell together; absent: no limit."""

    up: LinkRate | None = None
    """Rate from all devices of the cell together; absent: no limit."""

    within: str | None = None
    """The name of the cell of which it is a part; absent: it is a part of the shared link."""


class SharedLink(Section):
    """Link that all devices of a group share."""

    down: LinkRate | None = None
    """Rate towards all devices of the group together; absent: no limit."""

    up: LinkRate | None = None
    """Rate from all devices of the group together; absent: no limit."""

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
        limited = self.down is not None or self.up is not None or bool(self.cells)
        return limited or self.slots is not None

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
        if self.cells and self.slots is not None:
            raise ValueError("slots: a link with cells has no slots; leave out one of them")
        return self

    def line(self) -> SharedLine:
        """The shared link in the model."""
        return SharedLine(
            down_bps=self.down,
            up_bps=self.up,
            cells={
                name: Cell(down_bps=cell.down, up_bps=cell.up, within=cell.within)
                for name, cell in self.cells.items()
            },
            slots=self.slots,
            overflow=self.overflow,
        )

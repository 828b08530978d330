"""What all faults have that change the shape of links: their rates, delays and losses."""

from collections.abc import Mapping, Sequence

from muster.emulator.faults.catalogue.link_fault import LinkFault
from muster.emulator.faults.injection import FaultSite
from muster.emulator.faults.link_measures import LinkMeasures
from muster.emulator.links.shape import Shape


class ShapeFault(LinkFault):
    """A fault that changes the shape of links. It was observed when what the gateway measures is
    nearer to the link with the fault than to the link without it, and it is verified when it is
    nearer to the latter. Both are the link under all other faults that act at that moment."""

    def measured(self, link: LinkMeasures) -> float | None:
        """What the gateway has measured of the fault's effect; None: nothing yet."""
        raise NotImplementedError

    def expected(self, shape: Shape) -> float:
        """What it should measure on a link of this shape."""
        raise NotImplementedError

    def told(self, value: float, link: LinkMeasures) -> str:
        """A measured value, for people.

        Args:
            link: what the value was measured of.
        """
        raise NotImplementedError

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        measures, found = await site.links.measures(targets), {}
        for target, link in measures.items():
            now, without = site.links.shape(target), site.links.shape(target, but=self.change())
            if (value := self.measured(link)) is not None and self._is_nearer(value, now, without):
                found[target] = f"the gateway measured {self.told(value, link)}"
        return found

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        measures, found = await site.links.measures(targets), []
        for target, link in measures.items():
            now, with_ = site.links.shape(target), site.links.shape(target, with_=self.change())
            if (value := self.measured(link)) is not None and self._is_nearer(value, now, with_):
                found.append(target)
        return found

    def _is_nearer(self, value: float, to: Shape, than_to: Shape) -> bool:
        return abs(value - self.expected(to)) < abs(value - self.expected(than_to))

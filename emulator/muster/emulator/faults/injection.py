"""The contract of faults that the supervisor injects from outside, and what they may do."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from muster.common.faults import FaultKind
from muster.common.rates.recording import Direction
from muster.emulator.faults.link_changes import LinkChange
from muster.emulator.faults.link_measures import LinkMeasures
from muster.emulator.gateway.faults import Fault
from muster.emulator.links.shape import Shape, SharedState
from muster.emulator.run_folder.limits import Limited


class MeasuredUse(NamedTuple):
    """What a limited program uses, as the kernel measures it.

    Attributes:
        seconds: how long ago its share of a core was limited last.
        share: cores that it has used on average since then.
        held_back: how often it was held back since then, although it could have run.
        memory_bytes, memory_limit: bytes that it uses and may use. For a process these are its
            private writable memory, for a container all memory.
    """

    seconds: float
    share: float
    held_back: int
    memory_bytes: int
    memory_limit: int


class SharedSite(Protocol):
    """The shared links of a running fleet, by the names of their gateways."""

    async def begin(self, gateways: Iterable[str], change: LinkChange) -> None:
        """Let a change of rates act on shared links."""
        ...

    async def end(self, gateways: Iterable[str], change: LinkChange) -> None:
        """Let one change that equals `change` act on these links no longer."""
        ...

    async def measures(self, gateways: Iterable[str]) -> Mapping[str, Mapping[Direction, float]]:
        """The rates that gateways have measured lately, in bits per second, as in LinkMeasures;
        without gateways that cannot be reached."""
        ...

    def state(
        self, gateway: str, *, but: LinkChange | None = None, with_: LinkChange | None = None
    ) -> SharedState:
        """What holds on a shared link, as `LinkSite.shape`."""
        ...

    def mean_bps(self, gateway: str, direction: Direction, state: SharedState) -> float:
        """The mean rate of a shared link in a state; infinite: no limit."""
        ...


class LinkSite(Protocol):
    """The links of a running fleet, as faults see them.

    Attributes:
        shared: those that devices share.
    """

    shared: SharedSite

    async def begin(self, targets: Iterable[str], change: LinkChange) -> None:
        """Let a change act on the links of devices."""
        ...

    async def end(self, targets: Iterable[str], change: LinkChange) -> None:
        """Let one change that equals `change` act on these links no longer."""
        ...

    async def strike(self, targets: Iterable[str], fault: Fault) -> None:
        """Let a fault happen once. A gateway that cannot be reached has no connections to
        strike."""
        ...

    async def measures(self, targets: Iterable[str]) -> Mapping[str, LinkMeasures]:
        """What the gateways have measured; without links whose gateway cannot be reached."""
        ...

    def shape(
        self, client: str, *, but: LinkChange | None = None, with_: LinkChange | None = None
    ) -> Shape:
        """The shape that a link has now, according to its settings and the faults that act on it.

        Args:
            but: a change that is left out if it acts.
            with_: a change that does not act, but is added.
        """
        ...


class FaultSite(Protocol):
    """A running fleet, as faults see it. Targets are clients, "server" or names of gateways.

    Several faults may hold the same program down, or paused; it comes back when the last of them is
    healed.

    Attributes:
        moment: number of journal lines so far; a time that faults compare.
        links: the links of the devices.
    """

    @property
    def moment(self) -> int: ...

    @property
    def links(self) -> LinkSite: ...

    def ready(self, targets: Iterable[str]) -> list[str]:
        """The targets whose programs are alive and not starting."""
        ...

    def kill(self, target: str, number: int) -> None:
        """Kill the program of a target with a signal, and keep it down. Its death is expected."""
        ...

    async def start(self, target: str) -> None:
        """Let the program of a target come back; it is started unless another fault holds it."""
        ...

    def death_of(self, target: str) -> int | None:
        """The exit status with which the target's program ended since it was killed, or its memory
        limited, last; None if it has not ended yet."""
        ...

    async def pause(self, target: str) -> None:
        """Stop the program of a target without ending it."""
        ...

    async def resume(self, target: str) -> None:
        """Let a paused program go on, unless another fault keeps it paused."""
        ...

    async def paused(self, targets: Iterable[str]) -> list[str]:
        """The targets whose programs are stopped, as the kernel or Docker says."""
        ...

    async def limit(self, targets: Iterable[str], what: Limited, value: float) -> None:
        """Limit the programs of targets, until `free`. A program that uses more memory than its new
        limit, where the system does not end it for that, is killed. A program that ends because of
        its limit of memory stays down until `free`."""
        ...

    async def free(self, targets: Iterable[str], what: Limited, value: float) -> None:
        """Take a limit away again, and start the programs that have ended because of it."""
        ...

    async def use(self, targets: Iterable[str]) -> Mapping[str, MeasuredUse]:
        """What the programs of targets use; without those that are not alive."""
        ...

    @property
    def lacks_room(self) -> bool:
        """Whether the server waits for room on its disk."""
        ...

    def back_since(self, target: str, moment: int) -> bool:
        """Whether the journal shows since a moment that the target works: a device has opened its
        stream, the server has started, or a device of the gateway's group has opened its
        stream."""
        ...


class InjectedFault(FaultKind):
    """A fault that the supervisor injects into programs or links."""

    async def apply(self, site: FaultSite, targets: Sequence[str]) -> None:
        """Begin to act on the targets, all of which are ready."""
        raise NotImplementedError

    async def heal(self, site: FaultSite, targets: Sequence[str]) -> None:
        """Act no longer. Called once after every `apply`, also at the end of the run."""

    async def measure(self, site: FaultSite, targets: Sequence[str]) -> Mapping[str, float]:
        """What the effect is compared with, by target. Called before `apply`."""
        return {}

    async def observe(
        self, site: FaultSite, targets: Sequence[str], before: Mapping[str, float]
    ) -> Mapping[str, str]:
        """What is measured of the effect now, by target; without targets that show none.

        Args:
            before: what `measure` returned before the fault.
        """
        raise NotImplementedError

    async def verify(self, site: FaultSite, targets: Sequence[str], since: int) -> Sequence[str]:
        """The targets that are seen to work again.

        Args:
            since: the moment of the heal.
        """
        return [target for target in targets if site.back_since(target, since)]

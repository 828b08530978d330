"""The handle of a program on a node, and its pauses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from muster.emulator.launch.backend import ProgramPauses, ProgramUse
from muster.emulator.launch.ray.node_link import NodeLink, NodeLost
from muster.emulator.run_folder.limits import Limited


@dataclass(frozen=True)
class RemoteProgram:
    """A process of a node."""

    name: str
    pid: int
    link: NodeLink

    def signal(self, number: int) -> None:
        self.link.order("signal", name=self.name, number=number)

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"pid": self.pid}

    def is_paused(self) -> bool:
        """Whether the node says that the process is stopped. Called from another thread."""
        return bool(self.link.ask_from_thread("is_paused", name=self.name))

    def use(self) -> ProgramUse | None:
        """What the node says of it. Called from another thread."""
        found = self.link.ask_from_thread("use", name=self.name)
        return None if found is None else ProgramUse(*found)


class ClusterPauses:
    """Pauses and limits programs on their nodes, and those of this machine.

    Args:
        link_of: the connection to the node of a program; None: the program is on this machine, or
            nowhere.
    """

    def __init__(self, here: ProgramPauses, link_of: Callable[[str], NodeLink | None]) -> None:
        self._here = here
        self._link_of = link_of

    async def pause(self, name: str, handle: Mapping[str, Any]) -> bool:
        if (link := self._link_of(name)) is None:
            return await self._here.pause(name, handle)
        return bool(await _ask(link, "pause", name=name, handle=dict(handle)))

    async def resume(self, name: str) -> None:
        if (link := self._link_of(name)) is None:
            return await self._here.resume(name)
        await _ask(link, "resume", name=name)

    async def limit(self, name: str, what: Limited, value: float, handle: Mapping[str, Any]) -> str:
        if (link := self._link_of(name)) is None:
            return await self._here.limit(name, what, value, handle)
        asked = {"what": what, "value": value, "handle": dict(handle)}
        return str(await _ask(link, "limit", name=name, **asked) or "")

    async def free(self, name: str, what: Limited) -> None:
        if (link := self._link_of(name)) is None:
            return await self._here.free(name, what)
        await _ask(link, "free", name=name, what=what)

    async def held_back(self, name: str) -> int:
        if (link := self._link_of(name)) is None:
            return await self._here.held_back(name)
        return int(await _ask(link, "held_back", name=name) or 0)

    async def close(self) -> None:
        """Let the programs of this machine go on. Those of a node go on when its program ends."""
        await self._here.close()


async def _ask(link: NodeLink, do: str, **fields: Any) -> Any:
    """Ask a node; None if it is lost, and the program with it."""
    try:
        return await link.ask(do, **fields)
    except NodeLost:
        return None

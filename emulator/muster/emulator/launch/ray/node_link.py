"""The backend's end of the connection to the program of a node."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from muster.common.clock import Clock
from muster.common.errors import LaunchFailed
from muster.emulator.launch.ray.messages import failure_from_json
from muster.emulator.launch.starting import READY_S

_KEEPS_A_LEASE = 5
_MARGIN_S = 1.0
"""Seconds that a program has, after its lease, until everything on its node has ended."""

_END_S = 10.0
"""Most seconds in which a program ends if it is told to."""


class NodeLost(LaunchFailed):
    """A node does not answer, or its program has ended."""


class Pipe(Protocol):
    """Carries lines to the program of a node and from it."""

    def send(self, line: str) -> None:
        """Send a line. Lines arrive in order, or not at all if the node is lost."""
        ...

    async def receive(self) -> Sequence[str]:
        """Wait for lines, and return them.

        Raises:
            NodeLost: there will be none.
        """
        ...

    def end(self) -> None:
        """Close the program's input, so that it ends."""
        ...

    def kill(self) -> None:
        """End the program at once, if it can still be reached."""
        ...


class NodeLink:
    """Sends requests to the program of a node, keeps its lease, and finds out if it is lost.

    The node counts as lost when its program has ended, or when it has not answered and its lease
    has been over for a second. No program of the fleet is alive there then, unless the last message
    to the node took longer than that second.

    Args:
        tell: called with what the program tells without a request.
        lost: called once, if the node is lost.
    """

    def __init__(
        self,
        pipe: Pipe,
        clock: Clock,
        lease_s: float,
        tell: Callable[[dict[str, Any]], None],
        lost: Callable[[], None],
    ) -> None:
        self._pipe = pipe
        self._clock = clock
        self._lease_s = lease_s
        self._tell = tell
        self._lost = lost
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._sent_s = clock.monotonic()
        self._answered_s: float | None = None
        self._cut = self._ended = self._gone = self._closing = False
        self._loop = asyncio.get_running_loop()
        self._background = set[asyncio.Task[Any]]()
        self._watching = asyncio.create_task(self._watch())

    async def ask(self, do: str, **fields: Any) -> Any:
        """Send a request, and return its result.

        Raises:
            NodeLost: the node is lost, or may be.
            ConfigError, EndedBeforeReady, LaunchFailed: what the request led to on the node.
        """
        if self._gone:
            raise NodeLost("the node is lost")
        self._number += 1
        answer = self._answers[self._number] = self._loop.create_future()
        sent_s = self._clock.monotonic()
        if not (self._cut or self._closing):  # a word would renew the lease, which has to end
            self._sent_s = sent_s
            self._pipe.send(json.dumps({"id": self._number, "do": do, **fields}))
        result = await answer
        self._answered_s = max(sent_s, self._answered_s or sent_s)
        return result

    def order(self, do: str, **fields: Any) -> None:
        """Send a request, and ignore what becomes of it."""
        self._start(self.ask(do, **fields))

    def ask_from_thread(self, do: str, **fields: Any) -> Any:
        """Send a request from another thread, and wait for its result, which is None if the node
        is lost."""
        asking = asyncio.run_coroutine_threadsafe(self.ask(do, **fields), self._loop)
        try:
            return asking.result()
        except LaunchFailed:
            return None

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()

    async def _watch(self) -> None:
        """Find out that the node is lost, and say so when its programs have ended."""
        parts = {asyncio.create_task(self._read()), asyncio.create_task(self._keep())}
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            self._cut = True
            if not self._ended:
                self._pipe.kill()
                await self._clock.sleep_until(self._sent_s + self._lease_s + _MARGIN_S)
        finally:
            for part in parts:
                part.cancel()
            self._cut = self._gone = True
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(NodeLost("the node is lost"))
            self._answers.clear()
        if not self._closing:
            self._lost()

    async def _read(self) -> None:
        """Handle what the program sends, until it has ended or cannot be reached."""
        while not self._ended:
            try:
                lines = await self._pipe.receive()
            except NodeLost:
                return
            for line in lines:
                self._handle(json.loads(line))

    def _handle(self, message: dict[str, Any]) -> None:
        if "ended" in message:
            self._ended = True
        elif "id" not in message:
            self._tell(message)
        elif (answer := self._answers.pop(message["id"], None)) is not None and not answer.done():
            if "failed" in message:
                answer.set_exception(failure_from_json(message))
            else:
                answer.set_result(message["result"])

    async def _keep(self) -> None:
        """Renew the lease. Return if the program has not answered for as long as the lease, or has
        not begun to in time."""
        begun_s = self._clock.monotonic()
        while self._clock.monotonic() < self._answers_until(begun_s):
            self.order("keep")
            await self._clock.sleep_until(self._clock.monotonic() + self._lease_s / _KEEPS_A_LEASE)

    def _answers_until(self, begun_s: float) -> float:
        if self._answered_s is None:
            return begun_s + READY_S
        return self._answered_s + self._lease_s

    async def close(self) -> None:
        """End the program with everything that it has started, and return when that is gone."""
        self._closing = True
        self._pipe.end()
        await asyncio.wait({self._watching}, timeout=_END_S)
        self._pipe.kill()
        await asyncio.gather(self._watching, *self._background, return_exceptions=True)

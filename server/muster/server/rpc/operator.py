"""The Operator service: status, watch, stop and revoke, for the person who runs the fleet."""

import asyncio
from collections import deque
from collections.abc import Callable

import grpc

from muster.common.clock import Clock
from muster.server.coordination.coordinator import Coordinator
from muster.server.rpc.authentication import Authentication, Context
from muster.server.rpc.service import SHOWN, FleetService, errors_as_status
from muster.v1 import operator_pb2 as pb
from muster.v1 import operator_pb2_grpc

_TOGETHER_S = 0.05
"""Seconds within which events are collected into one message. A round of 10 devices makes 20 events
in 3 ms, and one message for each would cost more than the round."""

_KEPT = 10_000
"""Lines kept for a slow watcher."""


class Watchers:
    """The callers of Watch. Each receives the journal's lines from the moment it joins.

    Attributes:
        queues: the lines that wait for each of them.

    Args:
        flush: writes the journal's waiting lines to its file. It is called before a watcher joins,
            so that the file has all earlier lines, which the watcher does not receive.
    """

    def __init__(self, flush: Callable[[], None] = lambda: None) -> None:
        self._flush = flush
        self.queues: set[_Queue] = set()
        self.ended = asyncio.Event()

    def show(self, line: bytes) -> None:
        for queue in self.queues:
            queue.put(line.decode())

    def join(self) -> "_Queue":
        self._flush()
        queue = _Queue()
        self.queues.add(queue)
        return queue

    def leave(self, queue: "_Queue") -> None:
        self.queues.discard(queue)


class _Queue:
    """The lines that wait for one watcher. If there are too many, the oldest are dropped and
    counted."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._missed = 0

    def put(self, line: str) -> None:
        self._missed += len(self._lines) == _KEPT
        self._lines.append(line)

    def take(self) -> tuple[list[str], int]:
        lines, missed = list(self._lines), self._missed
        self._lines.clear()
        self._missed = 0
        return lines, missed


class OperatorService(operator_pb2_grpc.OperatorServicer):
    """The Operator service of one run."""

    def __init__(
        self,
        coordinator: Coordinator,
        fleet: FleetService,
        authentication: Authentication,
        watchers: Watchers,
        incarnation: int,
        clock: Clock,
    ) -> None:
        self._coordinator = coordinator
        self._fleet = fleet
        self._authentication = authentication
        self._watchers = watchers
        self._incarnation = incarnation
        self._clock = clock

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusReply:
        async with errors_as_status(context, self._coordinator.fail):
            return self._status()

    def _status(self) -> pb.StatusReply:
        coordinator = self._coordinator
        reply = pb.StatusReply(
            run=coordinator.config.run,
            incarnation=self._incarnation,
            rounds=coordinator.settings.rounds,
            committed_round=coordinator.committed.round,
            version=coordinator.committed.version,
            population=len(coordinator.fleet.devices),
            present=coordinator.fleet.present,
        )
        if (round := coordinator.receiver.round) is not None:
            members = round.cohort.values()
            reply.round, reply.phase, reply.called = round.number, round.phase, len(members)
            reply.answered = sum(member.answer is not None for member in members)
            reply.updates = sum(member.accepted is not None for member in members)
        return reply

    async def Watch(self, request: pb.WatchRequest, context: Context) -> None:  # type: ignore[override]
        async with errors_as_status(context, self._coordinator.fail):
            queue = self._watchers.join()
            try:
                await context.send_initial_metadata(())  # from now on no event is missed
                ended = False
                while not ended:
                    ended = self._watchers.ended.is_set()
                    lines, missed = queue.take()
                    if lines:
                        await context.write(pb.WatchEvent(lines=lines, missed=missed))
                    await self._clock.sleep_until(self._clock.monotonic() + _TOGETHER_S)
            finally:
                self._watchers.leave(queue)

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.StopReply:
        async with errors_as_status(context, self._coordinator.fail):
            self._coordinator.stop("stopped", "the operator asked for it")
            return pb.StopReply()

    async def Revoke(self, request: pb.RevokeRequest, context: Context) -> pb.RevokeReply:
        async with errors_as_status(context, self._coordinator.fail):
            caller = self._authentication.caller_of(request.client)
            if caller is None:
                await context.abort(
                    grpc.StatusCode.NOT_FOUND, f"the run has no device {request.client[:SHOWN]!r}"
                )
            try:
                self._authentication.revoke(caller)
            finally:  # also if a restarted server would not know
                self._fleet.end_sessions(caller, "its credentials have been revoked")
                self._coordinator.revoked(caller.name, caller.clients)
            return pb.RevokeReply(process=caller.name, clients=caller.clients)

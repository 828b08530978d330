"""The program of a node: starts the nursery, the gateways and the devices of the node, with the
processes backend.

    python -m muster.emulator.launch.ray.node_program

It reads its settings (`NodeProcess`) and then requests from standard input, and answers on
standard output (`messages`). All programs of the node end with it, whatever kills it. It ends when
its input ends, when its nursery dies, with which its devices die, and when it has heard nothing for
the lease: then the backend may be on the other side of a broken network, where it starts these
devices again.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.client.processes.config import NurseryProcess, PackProcess
from muster.common.bounds import RUNNING_DEVICES
from muster.common.clock import Clock, WallClock
from muster.common.config import Section
from muster.common.errors import LaunchFailed
from muster.emulator.gateway.config import GatewayProcess
from muster.emulator.launch.backend import ending
from muster.emulator.launch.doctor import raise_file_limit
from muster.emulator.launch.processes import Processes
from muster.emulator.launch.ray.messages import failure_to_json

_TELL_S = 0.02
"""Seconds between two looks at what has been started."""

_CLOSE_S = 0.1
"""Seconds between two looks whether the lease is over."""

_LINE_BYTES = 1 << 30
"""Most bytes of a request, which has the settings of all packs of the node."""


class NodeProcess(Section):
    """The settings with which the program of a node is started."""

    name: str
    """The name of the node, in the names of its logs."""

    folder: str
    """The run folder."""

    spawn: bool
    """Whether every pack is started in a process that shares nothing with the nursery."""

    lease_s: float
    """Wall seconds without a request after which it ends."""


class NodeProgram:
    """Does what the backend asks on a node.

    Args:
        send: sends a line to the backend.
    """

    def __init__(
        self, config: NodeProcess, clock: Clock, send: Callable[[dict[str, Any]], None]
    ) -> None:
        self._send = send
        self._clock = clock
        self._lease_s = config.lease_s
        self._heard = clock.monotonic()
        self._told: dict[str, int] = {}
        self._handling = set[asyncio.Task[None]]()
        self._nursery = f"nursery-{config.name}"
        self._ending = asyncio.Event()
        self._processes = Processes(
            Path(config.folder), clock, self._died, spawn=config.spawn, nursery=self._nursery
        )

    async def serve(self, requests: asyncio.StreamReader) -> None:
        """Handle requests until there are no more, nothing has come for the lease, or the nursery
        has died. Then end all programs of the node."""
        waiting = self._read(requests), self._lease(), self._ending.wait()
        parts = [asyncio.create_task(part) for part in (*waiting, self._tell_all())]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for task in (*parts, *self._handling):
            task.cancel()
        self._ending.set()
        await self._processes.close()
        await self._processes.pauses.close()

    async def _read(self, requests: asyncio.StreamReader) -> None:
        while line := await requests.readline():
            self._heard = self._clock.monotonic()
            task = asyncio.create_task(self._handle(json.loads(line)))
            self._handling.add(task)
            task.add_done_callback(self._handling.discard)

    async def _lease(self) -> None:
        while self._clock.monotonic() < self._heard + self._lease_s:
            await self._clock.sleep_until(self._clock.monotonic() + _CLOSE_S)
        logging.getLogger("muster.emulator").error(
            "nothing was heard for %g s: all programs of this node end", self._lease_s
        )

    async def _tell_all(self) -> None:
        while True:
            self._tell()
            await self._clock.sleep_until(self._clock.monotonic() + _TELL_S)

    def _tell(self) -> None:
        alive = {name: program.pid for name, program in self._processes.alive.items()}
        if started := dict(alive.items() - self._told.items()):
            self._send({"alive": started})
        self._told = alive

    def _died(self, name: str, status: int) -> None:
        if self._ending.is_set():
            return
        if name == self._nursery:
            logging.getLogger("muster.emulator").error(
                "the nursery %s: all programs of this node end", ending(status)
            )
            self._ending.set()
            return
        self._tell()
        self._send({"died": name, "status": status})

    async def _handle(self, request: dict[str, Any]) -> None:
        try:
            result = await self._do(request)
        except Exception as error:
            if not isinstance(error, LaunchFailed):
                logging.getLogger("muster.emulator").exception("a request failed")
            self._send({"id": request["id"], **failure_to_json(error)})
        else:
            self._tell()
            self._send({"id": request["id"], "result": result})

    async def _do(self, request: dict[str, Any]) -> Any:
        processes, pauses = self._processes, self._processes.pauses
        match request:
            case {"do": "keep"}:
                return None
            case {"do": "start_nursery", "config": config}:
                return await processes.start_nursery(NurseryProcess.model_validate(config))
            case {"do": "start_gateway", "config": config}:
                ports = await processes.start_gateway(GatewayProcess.model_validate(config))
                return ports.model_dump()
            case {"do": "start_packs", "configs": configs, "gpus": gpus}:
                # The packs name their GPUs by their places in this list.
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
                packs = [PackProcess.model_validate(config) for config in configs]
                return await processes.start_packs(packs)
            case {"do": "pause", "name": name}:
                return await pauses.pause(name, request["handle"])
            case {"do": "resume", "name": name}:
                return await pauses.resume(name)
            case {"do": "limit", "name": name, "what": what, "value": value}:
                return await pauses.limit(name, what, value, request["handle"])
            case {"do": "free", "name": name, "what": what}:
                return await pauses.free(name, what)
            case {"do": "held_back", "name": name}:
                return await pauses.held_back(name)
        program = processes.alive.get(request["name"])
        match request:
            case {"do": "signal", "number": number}:
                return program.signal(number) if program is not None else None
            case {"do": "is_paused"}:
                return program is not None and program.is_paused()
            case {"do": "use"}:
                return program.use() if program is not None else None
        raise LaunchFailed(f"a node cannot do this: {request['do']}")


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    config = NodeProcess.from_json(await requests.readline())

    def send(message: dict[str, Any]) -> None:
        with suppress(OSError):  # nobody reads any more
            os.write(1, json.dumps(message).encode() + b"\n")

    await NodeProgram(config, WallClock(), send).serve(requests)


def main() -> None:
    """Serve until there are no more requests."""
    # A Ctrl-C at the terminal of the cluster is not meant for the fleet.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    raise_file_limit(RUNNING_DEVICES)
    asyncio.run(_serve())


if __name__ == "__main__":
    main()

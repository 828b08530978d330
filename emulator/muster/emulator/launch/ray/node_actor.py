"""The actor of a node: a pipe between the backend and the program of the node.

It never forks, because Ray's and gRPC's threads do not survive that; it starts the program as a new
process. The program dies with this actor, and it ends too when its input closes.
"""

import asyncio
import json
import os
import platform
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import ray
import ray.util

from muster.common.installation import VERSION
from muster.common.processes import child_command, child_environment


def gpu_names() -> list[str]:
    """The GPUs that Ray has given the task that calls this."""
    return [str(name) for name in ray.get_gpu_ids()]


class NodeActor:
    """Starts the program of its node, and carries lines to it and from it."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._program: subprocess.Popen[bytes]

    async def facts(self, shared: str) -> dict[str, str | bool]:
        """What must be alike on all nodes.

        Args:
            shared: a file that must be there.
        """
        return {
            "address": ray.util.get_node_ip_address(),
            "Python": platform.python_version(),
            "muster": VERSION,
            "sees": await asyncio.to_thread(Path(shared).is_file),
        }

    async def start(self, settings: str, environment: Mapping[str, str], log: str) -> None:
        """Start the program of the node.

        Args:
            settings: its first line.
            environment: what its environment has besides that of this actor.
            log: the file that gets its messages.

        Raises:
            OSError: the file cannot be opened, or the program cannot be started.
        """
        # The program dies with the thread that started it (PR_SET_PDEATHSIG), so that thread is one
        # that lives as long as the program.
        started = Future[subprocess.Popen[bytes]]()
        arguments = asyncio.get_running_loop(), started, {**os.environ, **environment}, log
        threading.Thread(target=self._run, args=arguments, daemon=True).start()
        self._program = await asyncio.wrap_future(started)
        await self.send([settings])

    def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        started: "Future[subprocess.Popen[bytes]]",
        environment: Mapping[str, str],
        log: str,
    ) -> None:
        try:
            program = _start_program(environment, log)
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(program)
        assert program.stdout is not None
        for line in program.stdout:
            loop.call_soon_threadsafe(self._lines.put_nowait, line.decode())
        # It is not waited for yet, so the number of its group is still its own.
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        ended = json.dumps({"ended": program.wait()})
        loop.call_soon_threadsafe(self._lines.put_nowait, ended)

    async def send(self, lines: Sequence[str]) -> None:
        """Send lines to the program."""
        assert self._program.stdin is not None
        with suppress(BrokenPipeError):
            self._program.stdin.write("".join(f"{line}\n" for line in lines).encode())
            self._program.stdin.flush()

    async def receive(self) -> list[str]:
        """Wait for lines of the program, and return those that are there."""
        lines = [await self._lines.get()]
        while not self._lines.empty():
            lines.append(self._lines.get_nowait())
        return lines

    async def end(self) -> None:
        """Close the program's input, so that it ends."""
        assert self._program.stdin is not None
        with suppress(BrokenPipeError):
            self._program.stdin.close()


def _start_program(environment: Mapping[str, str], log: str) -> subprocess.Popen[bytes]:
    with open(log, "ab") as messages:
        return subprocess.Popen(
            child_command("muster.emulator.launch.ray.node_program"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            start_new_session=True,
            env=child_environment(environment),
        )

"""A program that a command starts before it has read what the program is for: both import their
modules at the same time, on two cores.

The program's standard input is a socket, on which it waits for what it is to do. If it is not
needed after all it ends with the command.
"""

import socket
from subprocess import DEVNULL, Popen

from muster.common.processes import child_command, child_environment

NURSERY = "muster.client.processes.nursery"
"""The module of the program from which devices are forked. It imports torch."""


class EarlyProgram:
    """A program that has been started early. It is handled like a process of asyncio, which cannot
    start one before there is an event loop.

    Attributes:
        process: the running program.
        control: the other end of its standard input.
    """

    def __init__(self, module: str) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = Popen(
                child_command(module),
                stdin=theirs.fileno(),
                stdout=DEVNULL,
                stderr=DEVNULL,
                start_new_session=True,
                env=child_environment(),
            )
        self.pid = self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.poll()

    async def wait(self) -> int:
        import asyncio  # whose import would keep the program waiting

        return await asyncio.to_thread(self.process.wait)

    def kill(self) -> None:
        self.process.kill()


_started: dict[str, EarlyProgram] = {}


def start_early(module: str) -> EarlyProgram:
    """Start a program that this process will probably need."""
    early = _started[module] = EarlyProgram(module)
    return early


def take_early(module: str) -> EarlyProgram | None:
    """The program that was started early, once, if it is still alive."""
    early = _started.pop(module, None)
    if early is not None and early.returncode is not None:
        early.control.close()
        return None
    return early

"""The pause watchdog: a small process that pauses programs for the supervisor, and lets them go on
if the supervisor does not.

It is the only one that pauses. It first gets a lasting hold of a program (a pidfd, or the id of a
container) and then pauses it. It lets everything go on when its standard input ends, because then
the supervisor has died, and when it has heard nothing for LEASE_S. The supervisor writes lines of
JSON and reads a line for each:

    {"pause": name, "pid": 12}  or  {"pause": name, "container": id}
    {"resume": name}
    {"keep": true}
"""

import json
import os
import select
import signal
from contextlib import suppress
from typing import Any, Protocol

LEASE_S = 10.0
"""Seconds of silence after which everything goes on."""


class _Hold(Protocol):
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class _HeldProcess:
    """A process of this machine. A pidfd never means another process, whatever ids are reused."""

    def __init__(self, pid: int) -> None:
        self._file = os.pidfd_open(pid)

    def pause(self) -> None:
        signal.pidfd_send_signal(self._file, signal.SIGSTOP)

    def resume(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._file, signal.SIGCONT)
        os.close(self._file)


class _HeldContainer:
    """A container. Docker freezes all its processes."""

    def __init__(self, container: str) -> None:
        import docker  # only where containers are paused

        self._client = docker.from_env()
        self._container = container

    def pause(self) -> None:
        self._client.api.pause(self._container)

    def resume(self) -> None:
        import docker.errors

        with suppress(docker.errors.APIError):  # it has ended, or goes on already
            self._client.api.unpause(self._container)
        self._client.close()


class Watchdog:
    """Holds the paused programs by name."""

    def __init__(self) -> None:
        self._held: dict[str, _Hold] = {}

    def handle(self, request: dict[str, Any]) -> str:
        """Do what a request asks, and return why that was impossible; "" if it was done."""
        try:
            if "pause" in request:
                if request["pause"] in self._held:  # the program died and was started again
                    self._held.pop(request["pause"]).resume()
                pid, container = request.get("pid"), request.get("container")
                held = _HeldProcess(pid) if pid is not None else _HeldContainer(str(container))
                self._held[request["pause"]] = held
                held.pause()
            elif "resume" in request and request["resume"] in self._held:
                self._held.pop(request["resume"]).resume()
        except Exception as error:  # the program has ended, or Docker does not answer
            return str(error) or type(error).__name__
        return ""

    def resume_all(self) -> None:
        for name in list(self._held):
            self._held.pop(name).resume()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the supervisor's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watchdog, rest = Watchdog(), b""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    try:
        while True:
            if not poll.poll(LEASE_S * 1000):
                watchdog.resume_all()
                continue
            if not (received := os.read(0, 1 << 16)):
                return
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                answer = {"failed": watchdog.handle(json.loads(line))}
                with suppress(BrokenPipeError):
                    os.write(1, json.dumps(answer).encode() + b"\n")
    finally:
        watchdog.resume_all()


if __name__ == "__main__":
    main()

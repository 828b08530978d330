"""The watchdog: a small process that pauses and limits programs for the supervisor, and lets them
go on if the supervisor does not.

It is the only one that pauses and limits. It first gets a lasting hold of a program (`holds`) and
then pauses it. It lets everything go on when its standard input ends, because then the supervisor
has died, and when it has heard nothing for LEASE_S. The supervisor writes lines of JSON and reads a
line for each:

    {"pause": name, "pid": 12}  or  {"pause": name, "container": id}
    {"resume": name}
    {"limit": name, "what": "cpu", "value": 0.2, "pid": 12}
    {"free": name, "what": "cpu"}
    {"held_back": name}
    {"keep": true}
"""

import json
import os
import select
import signal
import time
from contextlib import suppress
from typing import Any

from muster.emulator.launch.holds import HeldContainer, HeldProcess, Hold
from muster.emulator.run_folder.limits import LEASE_S


class Watchdog:
    """Holds the paused and limited programs by name."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[object, Hold]] = {}

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks.

        Returns:
            failed: why that was impossible; "" if it was done, or if the process has ended.
            ended: true if the process has ended.
            held_back: for a request of this name, how often the program was held back.
        """
        try:
            match request:
                case {"pause": name}:
                    self._hold(name, request).pause()
                case {"resume": name} if name in self._held:
                    self._held[name][1].resume()
                case {"limit": name, "what": what, "value": value}:
                    self._hold(name, request).limit(what, value)
                case {"free": name, "what": what} if name in self._held:
                    self._held[name][1].free(what)
                case {"held_back": name} if name in self._held:
                    return {"failed": "", "held_back": self._held[name][1].held_back}
        except ProcessLookupError:
            return {"failed": "", "ended": True}
        except Exception as error:  # the container has ended, or Docker does not answer
            return {"failed": str(error) or type(error).__name__}
        return {"failed": ""}

    def _hold(self, name: str, request: dict[str, Any]) -> Hold:
        """The hold of a program. If it died and was started again, the old hold is released."""
        identity = request.get("pid") or str(request.get("container"))
        held = self._held.get(name)
        if held is None or held[0] != identity:
            if held is not None:
                self._held.pop(name)[1].release()
            hold = HeldProcess(identity) if isinstance(identity, int) else HeldContainer(identity)
            held = self._held[name] = identity, hold
        return held[1]

    def tick(self, now: float) -> float | None:
        """Do what is due, and return the time when something is due next; None: nothing is."""
        due = [at for _, hold in self._held.values() if (at := hold.tick(now)) is not None]
        return min(due, default=None)

    def release_all(self) -> None:
        for name in list(self._held):
            self._held.pop(name)[1].release()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the supervisor's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watchdog, rest, heard = Watchdog(), b"", time.monotonic()
    poll = select.poll()
    poll.register(0, select.POLLIN)
    try:
        while True:
            now, ends = time.monotonic(), heard + LEASE_S
            next_s = min(ends, watchdog.tick(now) or ends) - now
            if not poll.poll(max(0.0, next_s) * 1000):
                if now >= ends:  # nothing has come meanwhile, even if Docker took long
                    watchdog.release_all()
                    heard = now
                continue
            if not (received := os.read(0, 1 << 16)):
                return
            heard = time.monotonic()
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                answer = watchdog.handle(json.loads(line))
                with suppress(BrokenPipeError):
                    os.write(1, json.dumps(answer).encode() + b"\n")
    finally:
        watchdog.release_all()


if __name__ == "__main__":
    main()

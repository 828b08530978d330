"""Round times of several checkouts of muster, measured side by side to show gains of a few percent.

python benchmarks/versions.py . ../before ../other --clients 10 --turns 20

Each checkout needs its own environment (run `make install` there). One fleet of each checkout is
alive all the time. One of them runs while the others are stopped (SIGSTOP); they take turns of a
part of a second each, in a random order. The machine's speed drifts by a factor of two within
minutes, but neighbouring turns see the same speed. The other checkouts are compared with the first.

Turns are too short for `launch.own_core` to see which processes are busy. With --apart the server
gets the first core, and the devices get the others.
"""

import argparse
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from processes import precise_cpu_s, tree

from muster.emulator.launch.placement import place

_WARM_S = 0.12
"""Seconds of a turn before the measurement, because the caches held another fleet's data."""

_WARM_ENTRIES = 300_000_000
"""Entries of updates in the rounds before the first turn: 3,000 rounds of 10 x 10,000."""

_MANY = 9_000_000
"""The configured rounds of a run; more than any measurement waits for."""


class Turn(NamedTuple):
    """The mean round of a turn: its length, and the processor time of the server and of all other
    processes, ms."""

    round: float
    server: float
    others: float


class CheckoutFleet:
    """A running fleet of one checkout."""

    def __init__(self, checkout: Path, clients: int, parameters: int, folder: Path) -> None:
        self.checkout = checkout
        python = checkout / ".venv/bin/python"
        if not python.exists():
            sys.exit(f"{checkout} has no environment ({python}); run make install there")
        case = map(str, (clients, parameters, _MANY))
        self._process = subprocess.Popen(
            [python, "benchmarks/rounds.py", *case],
            cwd=checkout,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        self._folder = folder
        self.turns: list[Turn] = []

    def signal(self, number: int) -> None:
        """Send a signal to all processes of the fleet."""
        for pid in [*tree(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def rounds(self) -> int:
        """Return the number of rounds that are durable so far."""
        for ledger in self._folder.glob("*/run/ledger.sqlite"):
            with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as database:
                with suppress(sqlite3.OperationalError):  # it is being created
                    return int(
                        database.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0]
                    )
        return 0

    def wait_for(self, rounds: int) -> None:
        """Wait until the fleet has run this many rounds."""
        while self.rounds() < rounds:
            if self._process.poll() is not None:
                sys.exit(f"{self.checkout}: the fleet ended with {self._process.returncode}")
            time.sleep(0.1)

    def place_apart(self) -> None:
        """Place the server on the first core and the devices on the others."""
        first, *others = sorted(os.sched_getaffinity(0))
        for pid in tree(self._process.pid):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            for module, cores in (
                (b"muster.server", [first]),
                (b"muster.client.processes.nursery", others),
                (b"muster.client.nursery", others),  # in checkouts from before it moved
            ):
                if module in command:
                    place(pid, cores)

    def run(self, seconds: float, apart: bool) -> None:
        """Let the fleet run for one turn, measure its mean round, and stop it again."""
        if apart:
            self.place_apart()
        self.signal(signal.SIGCONT)
        time.sleep(_WARM_S)
        rounds, began, cpu_s = self.rounds(), time.perf_counter(), self._cpu_s()
        time.sleep(seconds)
        more, took_s = self.rounds() - rounds, time.perf_counter() - began
        used_s = [after - before for after, before in zip(self._cpu_s(), cpu_s, strict=True)]
        self.signal(signal.SIGSTOP)
        if not more:
            sys.exit(f"{self.checkout}: no round in {took_s:.1f} s; take longer turns (--seconds)")
        self.turns.append(Turn(*(1000 * s / more for s in (took_s, *used_s))))

    def _cpu_s(self) -> tuple[float, float]:
        """The processor time that the server, and all other processes, have used so far."""
        server = others = 0.0
        for pid in tree(self._process.pid):
            if b"muster.server" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                server += precise_cpu_s(pid)
            else:
                others += precise_cpu_s(pid)
        return server, others

    def end(self) -> None:
        """End all processes of the fleet."""
        self.signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self.signal(signal.SIGKILL)
        self._process.wait()


@contextmanager
def fleets(
    checkouts: Sequence[Path], clients: int, parameters: int
) -> Iterator[list[CheckoutFleet]]:
    """Start a fleet of each checkout; warm them up and stop them."""
    with tempfile.TemporaryDirectory() as folder:
        found: list[CheckoutFleet] = []
        try:
            for number, checkout in enumerate(checkouts):
                own = Path(folder) / str(number)
                own.mkdir()
                found.append(CheckoutFleet(checkout.resolve(), clients, parameters, own))
                found[-1].wait_for(max(3, _WARM_ENTRIES // (clients * parameters)))
                found[-1].signal(signal.SIGSTOP)
            yield found
        finally:
            for fleet in found:
                fleet.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkouts", type=Path, nargs="+")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--parameters", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn")
    parser.add_argument("--apart", action="store_true", help="give the server its own core")
    settings = parser.parse_args()
    with fleets(settings.checkouts, settings.clients, settings.parameters) as found:
        for _ in range(settings.turns):
            for fleet in random.sample(found, len(found)):
                fleet.run(settings.seconds, settings.apart)
    print("ms a round, and of the first: length, CPU of the server, CPU of the other processes")
    for fleet in found:
        print(*compared(fleet.turns, found[0].turns), f" {fleet.checkout}")


def compared(turns: Sequence[Turn], first: Sequence[Turn]) -> Iterator[str]:
    """The median of each column, and that of its ratios to the first fleet's turns."""
    for own, other in zip(zip(*turns, strict=True), zip(*first, strict=True), strict=True):
        ratio = statistics.median(a / b for a, b in zip(own, other, strict=True))
        yield f"{statistics.median(own):9.3f} {ratio:6.3f}"


if __name__ == "__main__":
    main()

"""An honest fleet beside hostile connections: the server's memory and files, and the latency of its
rounds.

python benchmarks/hostile.py                          # 100 devices, 1,000 connections, 60 s each
python benchmarks/hostile.py 20 200 --seconds 10      # devices, connections

One run: first without the hostile connections, then with them, then without them again. They are of
every kind of `muster.chaos.hostile_connections`. Ten times a second, those that trickle
write a byte, and those that the server has closed come again.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from processes import resident_mib

if TYPE_CHECKING:
    from muster.chaos.hostile_peers import HostileDevice

HERE = Path(__file__).parent
PARAMETERS = 10_000
WARM_UP_S = 5.0
EVERY_S = 0.1
PHASES = ("before", "beside", "after")


class Attack:
    """Hostile connections and devices from a thread, from `begin` to `end`.

    Attributes:
        open: the number of hostile connections.
        closed: how many connections the server has closed, by kind.
    """

    def __init__(
        self, host: str, port: int, number: int, devices: Sequence["HostileDevice"] = ()
    ) -> None:
        self._address = host, port
        self._number = number
        self._devices = devices
        self._ending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._attack()))
        self.open = 0
        self.closed: Counter[str] = Counter()

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    async def _attack(self) -> None:
        from muster.chaos.hostile_connections import HostileConnections

        peers = HostileConnections(*self._address)
        self.closed = peers.closed
        await peers.open(self._number)
        playing = [asyncio.create_task(device.play()) for device in self._devices]
        while not self._ending.is_set():
            await peers.annoy()
            self.open = len(peers)
            await asyncio.sleep(EVERY_S)
        for each in playing:
            each.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
        await peers.close()


class Measurement:
    """Follows a run through its phases, and measures its server at the end of each."""

    def __init__(self, folder: Path, connections: int, seconds: float) -> None:
        self._folder = folder
        self._connections = connections
        self._seconds = seconds
        self._attack: Attack | None = None
        self._pid = 0
        self._phase = -1
        self._ends_at = 0.0
        self._committed: list[float] = []
        self.found: dict[str, dict[str, float]] = {}

    def look(self, event: dict[str, Any]) -> None:
        if event["event"] != "round_committed" or self._phase == len(PHASES):
            return
        self._committed.append(event["at"])
        now = time.monotonic()
        if not self._pid:
            address = json.loads((self._folder / "address.json").read_bytes())
            self._pid = address["pid"]
            self._attack = Attack(address["host"], address["port"], self._connections)
            self._ends_at = now + WARM_UP_S
        if now >= self._ends_at:
            self._next_phase(now)

    def _next_phase(self, now: float) -> None:
        from muster.emulator.run_folder.control import stop

        assert self._attack is not None
        if self._phase >= 0:
            self.found[PHASES[self._phase]] = self._measures()
        self._phase += 1
        if self._phase == PHASES.index("beside"):
            self._attack.begin()
        elif self._phase == PHASES.index("after"):
            self._attack.end()
        elif self._phase == len(PHASES):
            print(self._table(), flush=True)
            stop(self._folder)
        self._ends_at = now + self._seconds
        self._committed.clear()

    def _table(self) -> str:
        """A line for each measure."""
        lines = [f"{'':28}" + "".join(f"{phase:>10}" for phase in PHASES)]
        for name in self.found[PHASES[0]]:
            values = "".join(f"{self.found[phase][name]:>10.1f}" for phase in PHASES)
            lines.append(f"{name:28}{values}")
        return "\n".join(lines)

    def _measures(self) -> dict[str, float]:
        assert self._attack is not None
        times = [1e3 * (after - before) for before, after in pairwise(self._committed)]
        cuts = statistics.quantiles(times, n=100)
        return {
            "rounds": len(times),
            "round ms, median": cuts[49],
            "round ms, 99 of 100 below": cuts[98],
            "server MiB": resident_mib(self._pid),
            "server files": len(os.listdir(f"/proc/{self._pid}/fd")),
            "hostile connections": self._attack.open if self._phase == 1 else 0,
            "closed by the server": self._attack.closed.total() if self._phase == 1 else 0,
        }


def measure(
    devices: int, connections: int, seconds: float, together: int
) -> dict[str, dict[str, float]]:
    """Run a fleet; return what was measured, by phase.

    Args:
        together: devices of a process.
    """
    # The server, the nursery and the evaluation import the task by name, so they need its folder.
    os.environ["PYTHONPATH"] = str(HERE)
    sys.path.insert(0, str(HERE))
    from muster.common.config import validate
    from muster.emulator import run
    from muster.emulator.scenario.scenario import Scenario

    group = {"name": "echo", "count": devices, "devices_per_process": together}
    rounds = 10_000_000
    scenario = validate(
        Scenario,
        {
            "name": f"hostile-{connections}",
            "task": {"name": "echo:Echo", "parameters": PARAMETERS},
            "training": {"local_steps": 0},
            "server": {"rounds": rounds, "evaluate_every": rounds},
            "groups": [group],
        },
        "benchmark",
    )
    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        measurement = Measurement(Path(folder) / "run", connections, seconds)
        run(scenario, out=Path(folder) / "run", show=measurement.look, report=False)
    return measurement.found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("devices", nargs="?", type=int, default=100)
    parser.add_argument("connections", nargs="?", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase (default 60)")
    parser.add_argument("--devices-per-process", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "out/hostile.json")
    options = parser.parse_args()
    found = measure(
        options.devices, options.connections, options.seconds, options.devices_per_process
    )
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

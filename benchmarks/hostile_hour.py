"""An hour with all hostile clients at once beside 100 devices: does the run end with the model of
the undisturbed run? The numbers of docs/security.md.

python benchmarks/hostile_hour.py                          # an hour
python benchmarks/hostile_hour.py --seconds 60 --out DIR   # a minute; the folders of both runs stay

The run is in lockstep. Beside its honest devices it has one for each kind of
`muster.chaos.hostile_peers`, which is not willing to take part. Their processes are
paused, and the attackers use their credentials; 1,000 connections attack without any. Every tenth
honest device sends each of its updates again in the next round. When the time is over, the attack
ends, the paused processes go on, and after some further rounds the run is stopped. Then the same
fleet plays as many rounds undisturbed. Every minute a line says what was found, and the last line
is JSON. The exit status is 0 if both models are the same and `muster audit` finds nothing in
either run.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from hostile import Attack
from processes import resident_mib

from muster.chaos.hostile_peers import ATTACKS, HostileDevice
from muster.chaos.peer import open_channel
from muster.chaos.run_processes import RunProcess, run_processes
from muster.common.clock import WallClock
from muster.common.config import validate
from muster.common.credentials import SECRETS, credentials_path, device_name, read_credentials
from muster.emulator import Run, audit, run
from muster.emulator.run_folder.control import stop
from muster.emulator.scenario.scenario import Scenario

BEFORE = 5
AFTER = 10
"""Undisturbed rounds before and after the attack."""

MINUTE_S = 60.0
SAMPLE_S = 1.0

MOST_ROUNDS = 10_000_000


def fleet(devices: int, rounds: int = MOST_ROUNDS, **more: Any) -> Scenario:
    """Honest devices, and one for each kind of attack that declines every call."""
    values = {
        "name": "hostile-hour",
        # 75,010 parameters: two chunks of an upload, and too many to travel inside messages.
        "task": {
            "name": "digits",
            "model": {"kind": "mlp", "hidden": [1000]},
            "partition": {"kind": "iid"},
        },
        "training": {"learning_rate": 0.1, "local_steps": 1},
        "server": {"rounds": rounds, "evaluate_every": 100},
        "groups": [
            {"name": "honest", "count": devices},
            {"name": "hostile", "count": len(ATTACKS), "participation": {"willing": 0.0}},
        ],
        **more,
    }
    return validate(Scenario, values, "benchmark")


class Siege:
    """Follows a run: attacks it for some time, and samples its server.

    Attributes:
        minutes: a sample for each minute.
        most: the most of each measure in any sample.
    """

    def __init__(self, folder: Path, connections: int, seconds: float) -> None:
        self._folder = folder
        self._connections = connections
        self._seconds = seconds
        self._attack: Attack | None = None
        self._devices: list[HostileDevice] = []
        self._paused: list[RunProcess] = []
        self._server = 0
        self._began_at = self._sampled_at = 0.0
        self._rounds = 0
        self._stops_after = MOST_ROUNDS
        self.minutes: list[dict[str, float]] = []
        self.most: dict[str, float] = {}

    def look(self, event: Mapping[str, Any]) -> None:
        """Called with each event of the run."""
        now = time.monotonic()
        if self._attack is not None and now >= self._sampled_at + SAMPLE_S:
            self._sampled_at = now
            self._sample(now - self._began_at)
        if event["event"] != "round_committed":
            return
        self._rounds = event["round"]
        if self._attack is None and self._rounds == BEFORE:
            self._begin()
        elif self._paused and now >= self._began_at + self._seconds:
            self._end()
            self._stops_after = self._rounds + AFTER
        elif self._rounds == self._stops_after:
            stop(self._folder)

    def _begin(self) -> None:
        address = json.loads((self._folder / "address.json").read_bytes())
        processes = {each.name: each for each in run_processes(self._folder)}
        self._server = address["pid"]
        setup = json.loads((self._folder / "setup/server.json").read_bytes())
        examples = {each["client"]: each["examples"] for each in setup["population"]}
        for number, kind in enumerate(ATTACKS):
            client = f"hostile-{number:04d}"
            credentials = read_credentials(
                credentials_path(self._folder / SECRETS, device_name(client))
            )
            device = HostileDevice(
                kind,
                client,
                credentials.shown,
                partial(open_channel, f"{address['host']}:{address['port']}"),
                WallClock(),
                examples=examples[client],
                others=["honest-0000", "honest-0001"],
            )
            self._devices.append(device)
            self._paused.append(processes[client])
        for process in self._paused:
            os.kill(process.pid, signal.SIGSTOP)
        self._attack = Attack(address["host"], address["port"], self._connections, self._devices)
        self._attack.begin()
        self._began_at = time.monotonic()

    def _end(self) -> None:
        assert self._attack is not None
        self._attack.end()
        for process in self._paused:
            os.kill(process.pid, signal.SIGCONT)
        self._paused.clear()

    def close(self) -> None:
        """End the attack, if the run has ended before it."""
        if self._paused:
            self._end()

    def _sample(self, elapsed_s: float) -> None:
        measures = {"rounds": self._rounds, **measures_of(self._server, self._folder)}
        for name, value in measures.items():
            self.most[name] = max(self.most.get(name, 0.0), value)
        if elapsed_s >= MINUTE_S * len(self.minutes):
            self.minutes.append({"minute": len(self.minutes), **measures})
            say({**self.minutes[-1], **self.attacks()})

    def attacks(self) -> dict[str, Any]:
        """What the attackers have done so far, and how it was answered."""
        assert self._attack is not None
        answers = sum((device.answers for device in self._devices), Counter[str]())
        return {
            "connections_open": self._attack.open,
            "connections_closed_by_the_server": self._attack.closed.total(),
            "attacks": sum(device.strikes for device in self._devices),
            "calls": answers.total(),
            "answers": dict(answers.most_common()),
        }

    def by_kind(self) -> dict[str, Any]:
        """The same for each kind of connection and device."""
        assert self._attack is not None
        devices = {each.kind: {"attacks": each.strikes, **each.answers} for each in self._devices}
        return {"closed": dict(self._attack.closed), "devices": devices}


def measures_of(server: int, folder: Path) -> dict[str, float]:
    """The server's memory and open files, and what the files of uploads take."""
    descriptors = list(Path(f"/proc/{server}/fd").iterdir())
    models, uploads = str((folder / "models").resolve()), []
    for each in descriptors:
        with suppress(OSError):  # it was closed meanwhile
            if os.readlink(each).startswith(models) and (stat := each.stat()).st_nlink == 0:
                uploads.append(stat.st_size)
    return {
        "server_mib": round(resident_mib(server), 1),
        "descriptors": len(descriptors),
        "upload_files": len(uploads),
        "upload_mib": round(sum(uploads) / 2**20, 2),
        "log_kib": round((folder / "logs/server.log").stat().st_size / 2**10, 1),
    }


# --- the command ---------------------------------------------------------------------------------


def say(found: Mapping[str, Any]) -> None:
    print(json.dumps(found), flush=True)


def measure(devices: int, connections: int, seconds: float, out: Path) -> dict[str, Any]:
    """Play both runs, in folders below `out`; return what was found."""
    siege = Siege(out / "attacked", connections, seconds)
    replaying = {
        "do": "replay",
        "target": {"group": "honest", "count": max(1, devices // 10)},
        "when": {"round": 2},
    }
    try:
        attacked = run(
            fleet(devices, faults=[replaying]),
            out=out / "attacked",
            show=siege.look,
            report=False,
        )
    finally:
        siege.close()
    rounds = int(attacked.ledger.rounds["round"].max())
    say({"undisturbed": f"{rounds} rounds begin"})
    alone = run(fleet(devices, rounds), out=out / "undisturbed", report=False)
    hashes = [str(each.summary["model_sha256"]) for each in (attacked, alone)]
    return {
        "devices": devices,
        "connections": connections,
        "seconds": seconds,
        "rounds": rounds,
        "status": [attacked.status, alone.status],
        "model_sha256": hashes,
        "hash_equal": hashes[0] == hashes[1],
        "audit": [audit(each.folder).agrees for each in (attacked, alone)],
        "updates": updates_of(attacked),
        **siege.attacks(),
        "by_kind": siege.by_kind(),
        "most": siege.most,
        "minutes": siege.minutes,
    }


def updates_of(done: Run) -> dict[str, int]:
    """How many updates of each group had each outcome."""
    rows = done.ledger.contributions
    groups = rows["client"].str.partition("-")[0]
    counted = (groups + ": " + rows["outcome"]).value_counts()
    return {str(name): int(number) for name, number in counted.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=3_600.0, help="of the attack")
    parser.add_argument("--out", type=Path, help="a new folder for both runs; default: none stays")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-hostile-") as work:
        out = options.out or Path(work)
        out.mkdir(parents=True, exist_ok=True)
        found = measure(options.devices, options.connections, options.seconds, out)
    say(found)
    return 0 if found["hash_equal"] and all(found["audit"]) else 1


if __name__ == "__main__":
    sys.exit(main())

"""What a long run costs the server: numbers of docs/reliability.md.

python benchmarks/long_runs.py memory --rounds 100000
python benchmarks/long_runs.py restart --devices 100000 --contributions 1000000 --times 3

`memory` samples the server's memory during a run of a tiny task. `restart` writes the ledger and
the journal of a long run with the product's own classes, starts the server on them, and measures
the seconds until it serves. Both end with a line of JSON.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from processes import cpu_s, resident_mib

from muster.chaos.run_processes import run_processes
from muster.client.processes.nursery import prepare
from muster.common.clock import WallClock
from muster.common.config import validate
from muster.common.events import Attended, RoundOpened
from muster.common.journal import Journal
from muster.common.processes import PARENT, child_command
from muster.emulator import run
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.scenario.scenario import Scenario
from muster.server.account.ledger import Ledger
from muster.server.account.rows import AnswerRow, ContributionRow, RoundRow
from muster.server.account.store import Store
from muster.server.account.transaction import PendingTransaction
from muster.server.program import members_of
from muster.server.settings.process import ServerProcess
from muster.tasks.tasks import read_task

TASK = {"name": "linear", "dimension": 5, "examples_per_client": 8}
SAMPLE = 1_000
"""Rounds between two samples of the memory."""


def fleet(name: str, devices: int, **server: Any) -> Scenario:
    values = {
        "name": name,
        "task": TASK,
        "training": {"learning_rate": 0.01, "local_steps": 1},
        "server": server,
        "groups": [{"name": "dev", "count": devices, "devices_per_process": min(devices, 1000)}],
    }
    return validate(Scenario, values, "benchmark")


# --- memory --------------------------------------------------------------------------------------


def memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """Sample the server's resident memory, and fit a line to the second half of the run. The time
    until round n is fitted as n to a power, over the same half."""
    samples: list[tuple[int, float]] = []

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] % SAMPLE == 0:
            [pid] = [each.pid for each in run_processes(folder) if each.part == "server"]
            samples.append((event["round"], resident_mib(pid)))
            if event["round"] % (5 * SAMPLE) == 0:
                say(f"round {event['round']}: {samples[-1][1]:.2f} MiB")

    rounds = arguments.rounds
    scenario = fleet("memory", 2, rounds=rounds, evaluate_every=rounds)
    with tempfile.TemporaryDirectory(prefix="muster-memory-") as work:
        folder = Path(work) / "run"
        closed_at = run(scenario, out=folder, report=False, show=show).ledger.rounds["closed_at"]
    until_s = (closed_at - closed_at.iloc[0]).to_numpy()[1:]
    tenths = [1000 * float(np.median(part)) for part in np.array_split(np.diff(until_s), 10)]
    half = len(until_s) // 2
    numbers = np.arange(1, len(until_s) + 1)[half:]
    power = float(np.polyfit(np.log(numbers), np.log(until_s[half:]), 1)[0])
    late = np.array([sample for sample in samples if sample[0] >= rounds / 2])
    slope = float(np.polyfit(late[:, 0], late[:, 1], 1)[0])
    return {
        "rounds": rounds,
        "mib_at_a_tenth": samples[len(samples) // 10][1],
        "mib_at_the_half": late[0, 1],
        "mib_at_the_end": samples[-1][1],
        "bytes_a_round_in_the_second_half": round(slope * 2**20, 2),
        "ms_a_round_by_tenth": [round(ms, 3) for ms in tenths],
        "exponent_of_time_in_rounds": round(power, 3),
    }


# --- restart -------------------------------------------------------------------------------------


def restart(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write a run folder with a long past, and start the server in it several times."""
    with tempfile.TemporaryDirectory(prefix="muster-restart-") as work:
        folder = Path(work)
        server = prepared(folder, arguments.devices, arguments.contributions // arguments.round)
        write_past(folder, server, arguments.contributions, arguments.round)
        sizes = {name: size_mib(folder / name) for name in ("ledger.sqlite", "journal.jsonl")}
        say(f"MiB: {sizes}")
        starts = []
        for _ in range(arguments.times):
            seconds, cpu_s = seconds_to_serve(folder)
            starts.append({"seconds": round(seconds, 2), "cpu_s": round(cpu_s, 2)})
            say(f"serving after {starts[-1]}")
        return {"starts": starts, "mib": sizes}


def prepared(folder: Path, devices: int, rounds: int) -> ServerProcess:
    """Write what a supervisor writes before it starts the server."""
    for part in ("setup", "logs", "devices", "models"):
        (folder / part).mkdir()
    configs = ProcessConfigs(fleet("restart", devices, rounds=rounds + 1), folder)
    task = read_task(configs.task.to_json()).open(devices, configs.scenario.seed)
    server = configs.server(prepare(task, folder, configs.nursery().rational))
    (folder / "setup/server.json").write_text(server.to_json())
    return server


def write_past(folder: Path, server: ServerProcess, contributions: int, per_round: int) -> None:
    """Write the ledger and the journal of a run that has had so many contributions."""
    schema = server.tensors
    ledger, clock = Ledger(folder / "ledger.sqlite"), WallClock()
    store = Store(folder / "models", ledger, schema)
    ledger.begin(server.run, members_of(server), clock.now(), len(server.population), {})
    journal = Journal(folder / "journal.jsonl", "server", 1, clock)
    clients = [member.client for member in server.population]
    for client in clients:
        journal.add(Attended(client))
    model = np.zeros(schema.parameters, np.float32)
    ledger.enter_initial(store.put_model(0, model), None)
    for round in range(1, contributions // per_round + 1):
        first = (round - 1) * per_round % len(clients)
        called = clients[first : first + per_round]
        row = RoundRow(round, round - 1, round, "aggregated", len(called), len(called),
                       len(called), 8.0, 8.0, 8.0, 1.0, 60.0 * (round - 1), 60.0 * round, None,
                       None, 20, 20, float(round), float(round) + 0.5, 0.5)  # fmt: skip
        pending = PendingTransaction(contributions=list(updates(round, called)))
        answers = [AnswerRow(round, c, "accept", None, None, None, None, 1.0, 20, float(round))
                   for c in called]  # fmt: skip
        ledger.commit(row, answers, pending, store.put_model(round, model), forget=[round - 1])
        journal.add(RoundOpened(round, round - 1, len(called), 60.0 * (round - 1)))
        journal.add(row.committed({0: len(called)}))
    journal.close()
    ledger.close()


def updates(round: int, called: list[str]) -> Iterator[ContributionRow]:
    for client in called:
        yield ContributionRow(round, client, round, 1, round - 1, 0, 8.0, 8, 1.0, 20, 20, 0, 0.1,
                              None, 0.5, "folded", None, float(round), 1)  # fmt: skip


def size_mib(path: Path) -> float:
    return round(path.stat().st_size / 2**20, 1)


def seconds_to_serve(folder: Path) -> tuple[float, float]:
    """Start the server, wait until it serves, and kill it.

    Returns:
        Seconds from its start, and the seconds of CPU that it has used, which say the same on a
        machine with other work.
    """
    address = folder / "address.json"
    address.unlink(missing_ok=True)
    began = time.monotonic()
    with (folder / "logs/server.log").open("ab") as log:
        server = subprocess.Popen(
            child_command("muster.server", str(folder)),
            stderr=log,
            env={**os.environ, PARENT: str(os.getpid())},
        )
    try:
        while not address.exists():
            if server.poll() is not None:
                raise SystemExit((folder / "logs/server.log").read_text()[-2000:])
            time.sleep(0.005)
        return time.monotonic() - began, cpu_s(server.pid)
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()


# --- the command ---------------------------------------------------------------------------------


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("memory")
    command.add_argument("--rounds", type=int, default=100_000)
    command = commands.add_parser("restart")
    command.add_argument("--devices", type=int, default=100_000)
    command.add_argument("--contributions", type=int, default=1_000_000)
    command.add_argument("--round", type=int, default=1_000, help="contributions of a round")
    command.add_argument("--times", type=int, default=3)
    arguments = parser.parse_args()
    found = {"memory": memory, "restart": restart}[arguments.command](arguments)
    say(json.dumps({arguments.command: found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Durable updates per second over real sockets: synchronous rounds beside the buffered mode.

Clients return the model unchanged. An update counts when the version that it went into is durable.
A version is made of as many updates as there are clients in every mode, so that the modes are
compared with equally many versions.

python benchmarks/updates.py                # all cases: a table, benchmarks/out/updates.json
python benchmarks/updates.py 10 10000 1     # one case: clients, parameters, clients in a process
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# (clients, parameters, clients in a process, goal as text)
CASES = [
    (10, 10_000, 1, "buffered 4,000 per second"),
    (100, 10_000, 1, "buffered 3,000 per second"),
    (100, 10_000, 50, "buffered 8,000 per second"),
]
MODES = ("synchronous", "buffered on the wall clock", "buffered in lockstep")
UPDATES, WARM_UP = 12_000, 4_000


def measure(clients: int, parameters: int, together: int, mode: str) -> float:
    """The number of updates per second that became durable, without the first ones."""
    # The server, the nursery and the evaluation import the task by name, so they need its folder.
    os.environ["PYTHONPATH"] = str(HERE)
    sys.path.insert(0, str(HERE))
    from muster.common.config import validate
    from muster.emulator import run
    from muster.emulator.scenario.scenario import Scenario

    rounds = (UPDATES + WARM_UP) // clients
    server: dict[str, Any] = {"rounds": rounds, "evaluate_every": rounds}
    if mode != MODES[0]:
        server["mode"] = {"kind": "buffered", "k": clients, "concurrency": clients}
    clock: dict[str, Any] = {"kind": "rounds"}
    if mode == MODES[1]:
        clock, server["deadline_s"] = {"kind": "wall", "round_s": 1.0}, 30.0
    scenario = validate(
        Scenario,
        {
            "name": f"updates-{clients}",
            "clock": clock,
            "task": {"name": "echo:Echo", "parameters": parameters},
            "training": {"local_steps": 0},
            "server": server,
            "groups": [{"name": "echo", "count": clients, "devices_per_process": together}],
        },
        "benchmark",
    )
    with tempfile.TemporaryDirectory() as folder:
        done = run(scenario, out=Path(folder) / "run", report=False)
        counted = done.ledger.rounds[["closed_at", "folded"]]
    last = counted.iloc[WARM_UP // clients :]
    seconds = last["closed_at"].iloc[-1] - last["closed_at"].iloc[0]
    return float(last["folded"].iloc[1:].sum() / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", nargs="*", type=int, help="clients parameters clients-in-a-process")
    parser.add_argument("--repetitions", type=int, default=3, help="of every case, in turn")
    parser.add_argument("--out", type=Path, default=HERE / "out/updates.json")
    options = parser.parse_args()
    cases = [(*options.case, "")] if options.case else CASES
    results = []
    print(f"{'clients':>8} {'in a process':>13}  updates per second (median), by mode")
    for clients, parameters, together, goal in cases:
        found: dict[str, list[float]] = {mode: [] for mode in MODES}
        for _ in range(options.repetitions):
            for mode in MODES:
                found[mode].append(measure(clients, parameters, together, mode))
        medians = {mode: statistics.median(rates) for mode, rates in found.items()}
        results.append({"clients": clients, "together": together, "rates": medians})
        texts = (f"{mode}: {rate:,.0f}" for mode, rate in medians.items())
        print(f"{clients:>8} {together:>13}  {'; '.join(texts)}  {goal}", flush=True)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

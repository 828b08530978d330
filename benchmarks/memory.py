"""What it costs the server to remember the last update of every client.

python benchmarks/memory.py                      # 50 and 1,000 clients: a table, out/memory.json
python benchmarks/memory.py 1000 1000000 50 12   # clients, parameters, clients a round, rounds

Each fleet runs with fedavg and with the rules that remember. Devices return the model that they
got. At the end the memory is read again, as a restarted server does.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RULES = ("fedavg", "fedvarp", "mifa")
CASES = [(50, 1_000_000, 25, 12), (1_000, 1_000_000, 25, 12)]


def measure(rule: str, clients: int, parameters: int, chosen: int, rounds: int) -> dict[str, Any]:
    """Run one fleet with one rule."""
    # The server, the nursery and the evaluation import the task by name, so they need its folder.
    os.environ["PYTHONPATH"] = str(HERE)
    sys.path.insert(0, str(HERE))
    from muster.common.config import validate
    from muster.emulator import run
    from muster.emulator.scenario.scenario import Scenario

    packed = clients // 10
    scenario = validate(
        Scenario,
        {
            "name": f"memory-{rule}",
            "task": {"name": "echo:Echo", "parameters": parameters},
            "training": {"local_steps": 0},
            "server": {
                "rounds": rounds,
                "evaluate_every": rounds,
                "selection": {"kind": "uniform", "k": chosen},
                "aggregator": {"kind": rule, **({"start": "zero"} if rule == "mifa" else {})},
            },
            "groups": [{"name": "echo", "count": clients, "devices_per_process": packed}],
        },
        "benchmark",
    )
    peak = 0.0

    def show(event: dict[str, Any]) -> None:
        nonlocal peak
        if event["event"] == "ended":
            peak = event["server_peak_rss_mib"]

    with tempfile.TemporaryDirectory(dir=HERE) as folder:
        done = run(scenario, out=Path(folder) / "run", show=show, report=False)
        closed = list(done.ledger.rounds["closed_at"])
        remembered, size, seconds = read_again(Path(folder) / "run", parameters)
    times = [after - before for before, after in pairwise(closed)]
    return {
        "rule": rule,
        "clients": clients,
        "parameters": parameters,
        "chosen": chosen,
        "remembered": remembered,
        "round_s_median": statistics.median(times),
        "server_peak_rss_mib": peak,
        "disk_mib": size,
        "read_again_s": seconds,
    }


def read_again(folder: Path, parameters: int) -> tuple[int, float, float]:
    """The number of remembered updates, the MiB that they take on the disk, and the seconds to read
    and add up all of them."""
    from muster.server.account.ledger import Ledger
    from muster.server.updates.memory import MEMORY, UpdateMemory

    path = folder / MEMORY
    if not path.exists():
        return 0, 0.0, 0.0
    ledger = Ledger(folder / "ledger.sqlite")
    query = "SELECT client FROM clients ORDER BY position"
    clients = [client for (client,) in ledger._db.execute(query)]
    rows = ledger.memory()
    ledger.close()
    began = time.perf_counter()
    UpdateMemory(path, parameters, clients).load(rows)
    return len(rows), path.stat().st_blocks * 512 / 2**20, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("case", nargs="*", type=int, help="clients parameters chosen rounds")
    parser.add_argument("--out", type=Path, default=HERE / "out/memory.json")
    options = parser.parse_args()
    results = []
    names = "rule", "clients", "remembered", "s a round", "peak MiB", "disk MiB", "read again s"
    print("".join(f"{name:>13}" for name in names))
    for case in [tuple(options.case)] if options.case else CASES:
        for rule in RULES:
            found = measure(rule, *case)
            results.append(found)
            print(
                f"{rule:>13}{found['clients']:>13}{found['remembered']:>13}"
                f"{found['round_s_median']:>13.2f}{found['server_peak_rss_mib']:>13.0f}"
                f"{found['disk_mib']:>13.0f}{found['read_again_s']:>13.2f}",
                flush=True,
            )
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

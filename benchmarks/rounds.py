"""The overhead of a round over real sockets, with durable commits: clients return the model
unchanged.

python benchmarks/rounds.py                 # all cases: a table, benchmarks/out/rounds.json
python benchmarks/rounds.py 10 10000 200    # one case: clients, parameters, rounds
python benchmarks/rounds.py 10 10000 200 --beside unshaped   # or a link, docker, tls, secure
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# (clients, parameters, rounds, goal as text)
CASES = [
    (10, 10_000, 300, ""),
    (100, 10_000, 60, ""),
    (10, 5_000_000, 8, "server peak at most 400 MiB"),
    (100, 5_000_000, 3, "server peak at most 10 % more than with 10 clients"),
]


def warm_up(clients: int, parameters: int) -> int:
    """Return the number of rounds that are run before the measured ones. They take some seconds, in
    which the evaluation process imports torch and the server then gets its own core."""
    return max(3, 150_000_000 // (clients * parameters))


def measure(
    clients: int,
    parameters: int,
    rounds: int,
    link: str = "none",
    backend: Any = "processes",
    tls: bool = False,
    secure: dict[str, Any] | None = None,
    uncounted: int | None = None,
    together: int = 1,
) -> dict[str, Any]:
    """Run one case. A time is measured from the end of one round to the end of the next, so that
    nothing is left out.

    Args:
        secure: the table server.secure; None: none.
        uncounted: rounds before the measured ones; None: see `warm_up`.
        together: devices in a process.
    """
    # The server, the nursery and the evaluation import the task by name, so they need its folder.
    os.environ["PYTHONPATH"] = str(HERE)
    sys.path.insert(0, str(HERE))
    from muster.common.config import validate
    from muster.emulator import run
    from muster.emulator.scenario.scenario import Scenario

    summing = {} if secure is None else {"minimum": 3, "secure": secure}
    uncounted = warm_up(clients, parameters) if uncounted is None else uncounted
    scenario = validate(
        Scenario,
        {
            "name": f"echo-{clients}x{parameters}",
            "task": {"name": "echo:Echo", "parameters": parameters},
            "training": {"local_steps": 0},
            "server": {
                "rounds": rounds + uncounted,
                "evaluate_every": rounds + uncounted,
                **summing,
            },
            "launch": {"tls": tls},
            "groups": [
                {
                    "name": "echo",
                    "count": clients,
                    "link": {"profile": link},
                    "devices_per_process": together,
                }
            ],
        },
        "benchmark",
    )
    peak = 0.0

    def show(event: dict[str, Any]) -> None:
        nonlocal peak
        if event["event"] == "ended":
            peak = event["server_peak_rss_mib"]

    with tempfile.TemporaryDirectory() as folder:
        done = run(scenario, out=Path(folder) / "run", show=show, backend=backend)
        if done.status != "completed":
            sys.exit(f"the run is {done.status}, expected: completed; {done.ledger.run.detail}")
        closed = list(done.ledger.rounds["closed_at"])[uncounted - 1 :]
        sent = done.ledger.rounds["bytes_up"].tail(rounds).mean() / clients
    times_ms = [1000 * (after - before) for before, after in pairwise(closed)]
    return {
        "system": "muster",
        "clients": clients,
        "parameters": parameters,
        "rounds": rounds,
        "round_ms_median": statistics.median(times_ms),
        "round_ms_mean": statistics.fmean(times_ms),
        "round_ms_max": max(times_ms),
        "bytes_up_of_device": sent,
        "server_peak_rss_mib": peak,
        "seconds": closed[-1] - closed[0],
    }


def beside(case: list[int], other: str, pairs: int = 5) -> None:
    """Run one case alternately as it is and with a link, containers, TLS or secure aggregation."""
    changes: dict[str, dict[str, Any]] = {
        "docker": {"backend": "docker"},
        "tls": {"tls": True},
        "secure": {"secure": {}},
    }
    changed = changes.get(other, {"link": other})
    differences = []
    for _ in range(pairs):
        clients, parameters, rounds = case
        plain, altered = (
            measure(clients, parameters, rounds, **how)["round_ms_median"] for how in ({}, changed)
        )
        differences.append(altered - plain)
        print(f"processes without a link {plain:.2f} ms, {other} {altered:.2f} ms", flush=True)
    print(f"{other} adds {statistics.median(differences):+.2f} ms to a round (median of pairs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", type=int, help="clients parameters rounds")
    parser.add_argument("--out", type=Path, default=HERE / "out/rounds.json")
    parser.add_argument(
        "--beside",
        metavar="LINK",
        help="compare with this link profile, or with docker, tls or secure",
    )
    options = parser.parse_args()
    if options.beside:
        beside(options.case or list(CASES[0][:3]), options.beside)
        return
    cases = [(*options.case, "")] if options.case else CASES
    results = []
    print(f"{'clients':>8} {'parameters':>11} {'ms/round':>9} {'mean':>9} {'server peak MiB':>16}")
    for clients, parameters, rounds, goal in cases:
        found = measure(clients, parameters, rounds)
        results.append(found)
        print(
            f"{clients:>8} {parameters:>11} {found['round_ms_median']:>9.2f} "
            f"{found['round_ms_mean']:>9.2f} {found['server_peak_rss_mib']:>16.0f}  {goal}",
            flush=True,
        )
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

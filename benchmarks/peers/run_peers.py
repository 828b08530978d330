"""Compare rounds of muster and of Flower on this machine: the whole of `make bench-peers`.

The two alternate (Flower, muster, Flower, muster, ...), so that a change in the machine's load
falls on both; the table shows the medians of the repeats next to the goals.
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flower_legacy import PeerError, Processes, stop_on_signals
from install import PINS, installed, python

HERE = Path(__file__).resolve().parent
CASE_LIMIT_S = 1800.0
STOP_GRACE_S = 20.0  # longer than a Flower script needs to end its own processes


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison.

    Attributes:
        rounds: Flower's; muster_rounds are more where Flower's take seconds each.
        goal: the most that muster's round may take, as a part of Flower's.
        goal_rss_mib: the most memory muster's server may hold at once.
    """

    name: str
    environment: str
    script: str
    clients: int
    parameters: int
    rounds: int
    muster_rounds: int
    goal: float
    goal_rss_mib: float | None = None


CASES = (
    Case("small", "flwr-1.11.1", "flower_legacy.py", 10, 10_000, 200, 200, 1 / 4),
    Case("many", "flwr-1.11.1", "flower_legacy.py", 100, 10_000, 50, 50, 1 / 3),
    Case("large", "flwr-1.11.1", "flower_legacy.py", 10, 5_000_000, 5, 5, 1 / 2, 400.0),
    Case("newest", "flwr-next", "flower_next.py", 10, 10_000, 5, 200, 1 / 1000),
)


def muster_round(clients: int, parameters: int, rounds: int) -> dict[str, Any]:
    """muster's side: the keys are those that the Flower scripts print."""
    sys.path.insert(0, str(HERE.parent))
    measured: dict[str, Any] = importlib.import_module("rounds").measure(
        clients, parameters, rounds
    )
    return measured


def measure_flower(case: Case, rounds: int) -> dict[str, Any]:
    return run_script(
        str(python(case.environment)),
        str(HERE / case.script),
        f"--clients={case.clients}",
        f"--parameters={case.parameters}",
        f"--rounds={rounds}",
        f"--timeout={CASE_LIMIT_S:g}",
    )


def measure_muster(case: Case, rounds: int) -> dict[str, Any]:
    """muster_round in a process of its own, which leaves our signal handlers as they are."""
    size = (str(number) for number in (case.clients, case.parameters, rounds))
    return run_script(sys.executable, __file__, "--muster", *size)


def run_script(*command: str) -> dict[str, Any]:
    """The JSON object on the last line of a script's stdout.

    Raises:
        PeerError: the script failed; the message is what it said.
    """
    with (
        tempfile.TemporaryDirectory(prefix="bench-peers-") as folder,
        Processes(Path(folder), grace_s=STOP_GRACE_S) as processes,
    ):
        processes.start("case", command, {"FLWR_TELEMETRY_ENABLED": "0"})
        processes.wait("case", CASE_LIMIT_S + 5 * 60)
        lines = processes.output("case").read_text(encoding="utf-8").splitlines()
    measured: dict[str, Any] = json.loads(lines[-1])
    return measured


def run_case(case: Case, repeats: int, max_rounds: int | None) -> dict[str, Any]:
    """Both sides of one case, in turn; returns every run and the comparison."""
    flower_rounds, muster_rounds = (
        min(rounds, max_rounds or rounds) for rounds in (case.rounds, case.muster_rounds)
    )
    flower, muster = [], []
    for repeat in range(repeats):
        flower.append(measure_flower(case, flower_rounds))
        note(case, repeat, flower[-1])
        muster.append(measure_muster(case, muster_rounds))
        note(case, repeat, muster[-1])
    return compare(case, flower, muster)


def note(case: Case, repeat: int, run: dict[str, Any]) -> None:
    print(
        f"{case.name} {repeat + 1}: {run['system']}: {run['round_ms_median']:,.2f} ms a round, "
        f"{run['rounds']} rounds in {run['seconds']:.1f} s",
        file=sys.stderr,
        flush=True,
    )


def compare(
    case: Case, flower: Sequence[dict[str, Any]], muster: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The medians over the repeats, and whether muster's meet the goals of the case."""
    sides = {
        name: {
            key: statistics.median(run[key] for run in runs)
            for key in ("round_ms_median", "round_ms_mean", "server_peak_rss_mib")
        }
        for name, runs in (("flower", flower), ("muster", muster))
    }
    ratio = sides["muster"]["round_ms_median"] / sides["flower"]["round_ms_median"]
    rss = sides["muster"]["server_peak_rss_mib"]
    return {
        "name": case.name,
        "clients": case.clients,
        "parameters": case.parameters,
        "systems": {"flower": flower[0]["system"], "muster": muster[0]["system"]},
        "medians": sides,
        "ratio": ratio,
        "goal": case.goal,
        "goal_met": ratio <= case.goal,
        "goal_rss_mib": case.goal_rss_mib,
        "goal_rss_met": None if case.goal_rss_mib is None else rss <= case.goal_rss_mib,
        "runs": {"flower": list(flower), "muster": list(muster)},
    }


def table(compared: Sequence[dict[str, Any]]) -> str:
    """One line per case, in Markdown."""
    heads = (
        *("clients x parameters", "Flower", "Flower, ms a round", "muster, ms a round"),
        *("muster / Flower", "goal", "", "Flower, peak MiB", "muster, peak MiB", "goal", ""),
    )
    lines = [f"| {' | '.join(heads)} |", "|---|---|--:|--:|--:|--:|---|--:|--:|--:|---|"]
    for case in compared:
        flower, muster = case["medians"]["flower"], case["medians"]["muster"]
        cells = [
            f"{case['clients']} x {case['parameters']:,}",
            case["systems"]["flower"],
            f"{flower['round_ms_median']:,.2f}",
            f"{muster['round_ms_median']:,.2f}",
            f"{case['ratio']:.3g}",
            f"<= {case['goal']:.3g}",
            verdict(case["goal_met"]),
            f"{flower['server_peak_rss_mib']:,.0f}",
            f"{muster['server_peak_rss_mib']:,.0f}",
            f"<= {case['goal_rss_mib']:g}" if case["goal_rss_mib"] else "",
            verdict(case["goal_rss_met"]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(met: bool | None) -> str:
    return {True: "met", False: "missed", None: ""}[met]


def report(compared: Sequence[dict[str, Any]], repeats: int, shortened: bool) -> dict[str, Any]:
    """Everything measured, with what is needed to read it."""
    return {
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "repeats": repeats,
        "shortened": shortened,
        "cases": list(compared),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-rounds", type=int, help="shorten the cases, to try the scripts")
    parser.add_argument("--out", type=Path, help="write every run and the comparison as JSON")
    return parser.parse_args()


def main() -> int:
    if sys.argv[1:2] == ["--muster"]:
        clients, parameters, rounds = map(int, sys.argv[2:])
        print(json.dumps(muster_round(clients, parameters, rounds)))
        return 0
    stop_on_signals()
    options = arguments()
    missing = [name for name in PINS if not installed(name)]
    if missing:
        print(f"{', '.join(missing)}: run benchmarks/peers/install.py first", file=sys.stderr)
        return 1
    chosen = [case for case in CASES if case.name in options.cases]
    try:
        compared = [run_case(case, options.repeats, options.max_rounds) for case in chosen]
    except PeerError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(table(compared))
    if options.out:
        whole = report(compared, options.repeats, options.max_rounds is not None)
        options.out.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

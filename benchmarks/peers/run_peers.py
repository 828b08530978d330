"""Compare rounds of muster and of Flower on this machine: the whole of `make bench-peers`.

The two alternate (Flower, muster, Flower, muster, ...), so that a change in the machine's load
falls on both; the tables show the medians of the repeats next to the goals. In the cases of the
first table clients return what they get, and those of the second train: one and the same Flower app
runs under Flower's simulation engine and on muster's devices.
"""

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flower_legacy import PeerError, Processes, stop_on_signals
from install import installed, python

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from processes import rollup, tree  # noqa: E402  (they lie in the folder above)

CASE_LIMIT_S = 1800.0
STOP_GRACE_S = 20.0  # longer than a Flower script needs to end its own processes
MEMORY_EVERY_S = 2.0  # looking at the memory of a hundred processes takes 0.1 s


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


@dataclass(frozen=True, slots=True)
class AppCase:
    """The app of fashion/ under several systems, by their names in same_app.py.

    Attributes:
        goal: the most that a round of muster may take, as a part of Flower's.
    """

    name: str
    network: str
    rounds: int
    goal: float | None = None
    environment: str = "same-app"


APP_MEASURES = ("round_ms_median", "round_ms_mean", "round_cpu_s", "seconds", "peak_pss_mib")
APP_SYSTEMS = ("flower", "muster", "packs", "strategy")
APP_CASES = (AppCase("app-mlp", "mlp", 60, 1 / 3), AppCase("app-cnn", "cnn", 30))


def muster_round(clients: int, parameters: int, rounds: int) -> dict[str, Any]:
    """muster's side: the keys are those that the Flower scripts print."""
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


def measure_app(case: AppCase, system: str, data: str, seed: int) -> dict[str, Any]:
    return run_script(
        str(python(case.environment)),
        str(HERE / "same_app.py"),
        *(system, data, f"--network={case.network}", f"--rounds={case.rounds}", f"--seed={seed}"),
        with_memory=True,
    )


def run_script(*command: str, with_memory: bool = False) -> dict[str, Any]:
    """The JSON object on the last line of a script's stdout.

    Args:
        with_memory: add `peak_pss_mib`, the most memory that the script and its processes held
            together when they were looked at.

    Raises:
        PeerError: the script failed; the message is what it said.
    """
    with (
        tempfile.TemporaryDirectory(prefix="bench-peers-") as folder,
        Processes(Path(folder), grace_s=STOP_GRACE_S) as processes,
    ):
        script = processes.start("case", command, {"FLWR_TELEMETRY_ENABLED": "0"})
        memory = PeakMemory(script.pid)
        watch = memory.look if with_memory else lambda: None
        processes.wait("case", CASE_LIMIT_S + 5 * 60, watch)
        lines = processes.output("case").read_text(encoding="utf-8").splitlines()
    measured: dict[str, Any] = json.loads(lines[-1])
    return {**measured, "peak_pss_mib": memory.peak_mib} if with_memory else measured


class PeakMemory:
    """The most memory that a process and its descendants held together when they were looked at, in
    `peak_mib`. What several of them share counts once."""

    def __init__(self, pid: int) -> None:
        self.peak_mib = 0.0
        self._pid = pid
        self._next = 0.0

    def look(self) -> None:
        """Look at the memory if it is time to."""
        if time.monotonic() >= self._next:
            sum_kib = 0
            for pid in tree(self._pid):
                with suppress(OSError):  # it has ended
                    sum_kib += rollup(pid)["Pss"]
            self.peak_mib = max(self.peak_mib, sum_kib / 1024)
            self._next = time.monotonic() + MEMORY_EVERY_S


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


def run_app_cases(
    cases: Sequence[AppCase], repeats: int, max_rounds: int | None
) -> list[dict[str, Any]]:
    """The cases of the app, on the same data."""
    if not cases:
        return []
    with tempfile.TemporaryDirectory(prefix="bench-peers-data-") as data:
        script = str(HERE / "same_app.py")
        written = subprocess.run([str(python(cases[0].environment)), script, "data", data])
        if written.returncode:
            raise PeerError("the app has no data")
        return [run_app_case(case, repeats, max_rounds, data) for case in cases]


def run_app_case(case: AppCase, repeats: int, max_rounds: int | None, data: str) -> dict[str, Any]:
    """All systems of one case in turn, with another seed in every repeat."""
    # Two commits have one round between them.
    case = replace(case, rounds=max(2, min(case.rounds, max_rounds or case.rounds)))
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in APP_SYSTEMS}
    for repeat in range(repeats):
        for system in APP_SYSTEMS:
            run = measure_app(case, system, data, seed=repeat + 1)
            note(case, repeat, run)
            runs[system].append(run)
    return compare_app(case, runs)


def compare_app(case: AppCase, runs: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """The medians over the repeats, with the ratios to the first system, and the accuracy."""
    base = runs["flower"]
    return {
        "name": case.name,
        "network": case.network,
        "rounds": case.rounds,
        "goal": case.goal,
        "systems": [
            {
                "system": of[0]["system"],
                **{key: statistics.median(run[key] for run in of) for key in APP_MEASURES},
                "ratios": [
                    run["round_ms_median"] / first["round_ms_median"]
                    for run, first in zip(of, base, strict=True)
                ],
                "accuracy_mean": statistics.fmean(run["accuracy"] for run in of),
                "accuracy_sd": statistics.stdev(run["accuracy"] for run in of)
                if len(of) > 1
                else None,
                "runs": list(of),
            }
            for of in runs.values()
        ],
    }


def app_table(compared: Sequence[dict[str, Any]]) -> str:
    """One line per case and system, in Markdown."""
    heads = (
        *("network", "system", "s a round", "muster / Flower", "least, most", "goal", ""),
        *("CPU s a round", "s for the whole run", "peak MiB", "accuracy, %"),
    )
    lines = [f"| {' | '.join(heads)} |", "|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|"]
    for case in compared:
        for index, found in enumerate(case["systems"]):
            ratio, goal = statistics.median(found["ratios"]), case["goal"] if index else None
            spread = f" ± {100 * found['accuracy_sd']:.1f}" if found["accuracy_sd"] else ""
            cells = [
                case["network"],
                found["system"],
                f"{found['round_ms_median'] / 1000:.2f}",
                f"{ratio:.2f}",
                f"{min(found['ratios']):.2f}, {max(found['ratios']):.2f}",
                f"<= {goal:.3g}" if goal else "",
                verdict(None if goal is None else ratio <= goal),
                f"{found['round_cpu_s']:.2f}",
                f"{found['seconds']:.1f}",
                f"{found['peak_pss_mib']:,.0f}",
                f"{100 * found['accuracy_mean']:.1f}{spread}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def note(case: Case | AppCase, repeat: int, run: dict[str, Any]) -> None:
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


def report(
    compared: Sequence[dict[str, Any]],
    apps: Sequence[dict[str, Any]],
    repeats: int,
    shortened: bool,
) -> dict[str, Any]:
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
        "apps": list(apps),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [case.name for case in (*CASES, *APP_CASES)]
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
    chosen = [case for case in (*CASES, *APP_CASES) if case.name in options.cases]
    missing = {case.environment for case in chosen if not installed(case.environment)}
    if missing:
        print(f"{', '.join(missing)}: run benchmarks/peers/install.py first", file=sys.stderr)
        return 1
    try:
        # First, because they end at once if MUSTER_DATA is not set.
        apps = run_app_cases(
            [case for case in chosen if isinstance(case, AppCase)],
            options.repeats,
            options.max_rounds,
        )
        compared = [
            run_case(case, options.repeats, options.max_rounds)
            for case in chosen
            if isinstance(case, Case)
        ]
    except PeerError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(
        "\n\n".join(
            text for text in (compared and table(compared), apps and app_table(apps)) if text
        )
    )
    if options.out:
        whole = report(compared, apps, options.repeats, options.max_rounds is not None)
        options.out.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

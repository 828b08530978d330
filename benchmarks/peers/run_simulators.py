"""Compare simulators of federated learning on the same work: LR-MNIST as FLUTE's README states it,
or a CNN on CIFAR-10.

Each system does the work once per turn, in an environment of its own, and in one thread for each
training. Processor seconds and memory are those of all processes of the command. The work is in
simulators/work.py, and what each system does in the script beside it.

python benchmarks/peers/run_simulators.py                 # needs MNIST in MUSTER_DATA
python benchmarks/peers/run_simulators.py --work cnn-cifar10    # needs CIFAR-10 there
python benchmarks/peers/run_simulators.py --systems pfl muster-memory --turns 3
"""

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flower_legacy import PeerError, Processes, stop_on_signals
from install import installed, python
from run_peers import STOP_GRACE_S

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from processes import cpu_s, rollup, tree  # noqa: E402  (they lie in the folder above)

SCRIPTS = HERE / "simulators"
# By name: the environment, or none for that of muster; the script and its further arguments.
SYSTEMS: dict[str, tuple[str | None, Sequence[str]]] = {
    "loop": (None, ("bare_loop.py",)),
    "muster": (None, ("with_muster.py", "processes")),
    "muster-memory": (None, ("with_muster.py", "memory")),
    "pfl": ("pfl", ("with_pfl.py",)),
    "fluke": ("fluke", ("with_fluke.py",)),
    "flgo": ("flgo", ("with_flgo.py",)),
    "appfl": ("appfl", ("with_appfl.py",)),
    "flower": ("flwr", ("with_flower.py",)),
}
MEASURES = ("seconds", "wall_s", "cpu_s", "peak_mib", "accuracy")
LOOK_S = 0.2
MEMORY_EVERY_S = 1.0
LIMIT_S = 3600.0
PR_SET_CHILD_SUBREAPER = 36


class Watch:
    """Adds up the processor time of this process's descendants, and their most memory (PSS).

    What ends without being waited for comes to this process. Ray does not wait for its workers,
    so that Linux forgets their time: what was seen of each process counts if it is more.
    """

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._seen: dict[int, float] = {}
        self._next_memory = self._next = 0.0
        self._before = self._waited_for()

    def look(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_S
        with_memory = now >= self._next_memory
        pss_kib = 0
        for pid in [*tree(os.getpid())][1:]:
            with suppress(OSError, KeyError):  # it has ended
                self._seen[pid] = cpu_s(pid)
                pss_kib += rollup(pid)["Pss"] if with_memory else 0
        if with_memory:
            self._next_memory = now + MEMORY_EVERY_S
            self.peak_mib = max(self.peak_mib, pss_kib / 1024)

    def cpu_s(self) -> float:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        return max(self._waited_for() - self._before, sum(self._seen.values()))

    @staticmethod
    def _waited_for() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


def measure(name: str, data: str) -> dict[str, Any]:
    """Let one system do the work.

    Raises:
        PeerError: it failed; the message is what it said.
    """
    environment, (script, *options) = SYSTEMS[name]
    interpreter = str(python(environment)) if environment else sys.executable
    command = (interpreter, str(SCRIPTS / script), data, *options)
    with (
        tempfile.TemporaryDirectory(prefix="bench-peers-") as folder,
        Processes(Path(folder), grace_s=STOP_GRACE_S) as processes,
    ):
        watch = Watch()
        began = time.perf_counter()
        processes.start("system", command, {"FLWR_TELEMETRY_ENABLED": "0", "HOME": folder})
        processes.wait("system", LIMIT_S, watch.look)
        wall_s = time.perf_counter() - began
        lines = processes.output("system").read_text(encoding="utf-8").splitlines()
    found = next(line for line in reversed(lines) if line.startswith('{"system"'))
    measured: dict[str, Any] = json.loads(found)
    return {**measured, "wall_s": wall_s, "cpu_s": watch.cpu_s(), "peak_mib": watch.peak_mib}


def take_turn(name: str, data: str, turn: int, runs: dict[str, list[dict[str, Any]]]) -> None:
    """Measure a system, and say what came of it. One that fails has no further turns."""
    try:
        runs[name].append(measure(name, data))
        said = json.dumps(runs[name][-1])
    except PeerError as failure:
        del runs[name]
        said = f"{name} failed: {failure}"
    print(f"turn {turn + 1}, load {os.getloadavg()[0]:.1f}: {said}", file=sys.stderr, flush=True)


def table(runs: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """A line for every system in Markdown, with the medians of its turns."""
    heads = "| system | s in rounds | s for the whole command | CPU s | peak MiB | accuracy, % |"
    lines = [heads, "|---|--:|--:|--:|--:|--:|"]
    for of in runs.values():
        median = {key: statistics.median(run[key] for run in of) for key in MEASURES}
        cpu = sorted(run["cpu_s"] for run in of)
        cells = [
            of[0]["system"],
            f"{median['seconds']:.1f}",
            f"{median['wall_s']:.1f}",
            f"{median['cpu_s']:.1f} ({cpu[0]:.1f} to {cpu[-1]:.1f})",
            f"{median['peak_mib']:,.0f}",
            f"{100 * median['accuracy']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--work", choices=("lr-mnist", "cnn-cifar10"), default="lr-mnist")
    options = parser.parse_args()
    needed = {environment for name in options.systems if (environment := SYSTEMS[name][0])}
    if missing := {environment for environment in needed if not installed(environment)}:
        print(f"{', '.join(missing)}: run benchmarks/peers/install.py first", file=sys.stderr)
        return 1
    os.environ["BENCH_WORK"] = options.work
    stop_on_signals()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.systems}
    with tempfile.TemporaryDirectory(prefix="bench-peers-data-") as folder:
        data = str(Path(folder) / f"{options.work}.npz")
        if subprocess.run([sys.executable, str(SCRIPTS / "prepare.py"), data]).returncode:
            return 1
        try:
            for turn in range(options.turns):
                for name in [*runs]:
                    take_turn(name, data, turn, runs)
        except KeyboardInterrupt:
            return 130
    print(table(runs))
    return int(len(runs) < len(options.systems))


if __name__ == "__main__":
    raise SystemExit(main())

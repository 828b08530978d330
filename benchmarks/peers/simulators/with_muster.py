"""The work with muster: as processes, or in virtual time inside this process.

python benchmarks/peers/simulators/with_muster.py FILE.npz processes|memory
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from work import (
    BATCH_SIZE,
    CLIENTS,
    EPOCHS,
    LEARNING_RATE,
    PER_ROUND,
    ROUNDS,
    SEED,
    TEST_EVERY,
    Stopwatch,
    outcome,
)

from muster.common.config import validate
from muster.emulator import run
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

PACK = {"processes": 500, "memory": 1000}


def scenario(data: str, packed: int) -> Scenario:
    values = {
        "name": "lr-mnist",
        "seed": SEED,
        "task": {
            "name": "own",
            "model": "softmax",
            "partition": "natural",
            "source": {"kind": "npz", "path": str(Path(data).absolute()), "user": "user"},
        },
        "training": {
            "learning_rate": LEARNING_RATE,
            "local_epochs": EPOCHS,
            "batch_size": BATCH_SIZE,
            "together": 10,
        },
        "server": {
            "rounds": ROUNDS,
            "evaluate_every": TEST_EVERY,
            "selection": {"kind": "uniform", "k": PER_ROUND},
        },
        "groups": [{"name": "clients", "count": CLIENTS, "devices_per_process": packed}],
    }
    return validate(Scenario, values, "the benchmark")


def main() -> None:
    data, way = sys.argv[1:]
    work = scenario(data, PACK[way])
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        if way == "processes":
            ended = run(work, out=Path(folder) / "run", report=False)
            rounds = ended.ledger.rounds
            seconds = float(rounds["closed_at"].max() - rounds["opened_at"].min())
            outcome("muster, packs of 500", seconds, *done(ended.summary))
        else:
            watch = Stopwatch()
            simulate_run(work, Path(folder) / "run")
            seconds = watch.seconds()  # with the start and the end: its clock is virtual
            summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
            outcome("muster, virtual time", seconds, *done(summary))


def done(summary: Mapping[str, Any]) -> tuple[int, float, int]:
    """The rounds, the accuracy and the updates that count."""
    return summary["rounds"], summary["final"]["accuracy"], summary["updates_folded"]


if __name__ == "__main__":
    main()

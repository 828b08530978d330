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
    CHANNELS,
    CLIENTS,
    EPOCHS,
    HIDDEN,
    LEARNING_RATE,
    PER_ROUND,
    ROUNDS,
    SEED,
    TEST_EVERY,
    WORK,
    Stopwatch,
    outcome,
)

from muster.common.config import validate
from muster.emulator import run
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

PACKS = {"processes": 2, "memory": 1}
TOGETHER = {"lr-mnist": 10, "cnn-cifar10": 1}
MODELS: dict[str, dict[str, Any]] = {
    "lr-mnist": {"model": "softmax"},
    "cnn-cifar10": {"model": "cnn", "channels": CHANNELS, "hidden": HIDDEN},
}


def scenario(data: str, packed: int) -> Scenario:
    values = {
        "name": WORK,
        "seed": SEED,
        "task": {
            "name": "own",
            **MODELS[WORK],
            "partition": "natural",
            "source": {"kind": "npz", "path": str(Path(data).absolute()), "user": "user"},
        },
        "training": {
            "learning_rate": LEARNING_RATE,
            "local_epochs": EPOCHS,
            "batch_size": BATCH_SIZE,
            "together": TOGETHER[WORK],
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
    work = scenario(data, CLIENTS // PACKS[way])
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        if way == "processes":
            ended = run(work, out=Path(folder) / "run", report=False)
            rounds = ended.ledger.rounds
            seconds = float(rounds["closed_at"].max() - rounds["opened_at"].min())
            outcome(f"muster, packs of {CLIENTS // 2}", seconds, *done(ended.summary))
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

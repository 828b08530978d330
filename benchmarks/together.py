"""Devices that train at the same time (`training.together`), beside one after the other.

python benchmarks/together.py
python benchmarks/together.py --data DIR     # also models of Fashion-MNIST

First the training of 100 devices by itself, for models of different sizes, in one thread. Then
whole runs of 1,000 devices in two processes. Both ways take turns, and ratios are medians over
pairs of turns.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent

LINEAR: dict[str, Any] = {"name": "linear", "dimension": 50}
WORKS: dict[str, dict[str, Any]] = {
    "linear regression, 50": LINEAR,
    "MLP, 50-32": {**LINEAR, "model": "mlp", "hidden": [32]},
    "digits, softmax": {"name": "digits", "model": "softmax"},
    "digits, MLP 64-32": {"name": "digits", "model": "mlp", "hidden": [32]},
    "digits, MLP 64-200": {"name": "digits", "model": "mlp", "hidden": [200]},
    "digits, MLP 64-200-100": {"name": "digits", "model": "mlp", "hidden": [200, 100]},
}
LARGER: dict[str, dict[str, Any]] = {
    "softmax": {"model": "softmax"},
    "MLP 784-32": {"model": "mlp", "hidden": [32]},
    "MLP 784-200": {"model": "mlp", "hidden": [200]},
}
TRAINING: dict[str, Any] = {"learning_rate": 0.05, "local_steps": 20, "batch_size": 10}
DEVICES = 100

RUNS = ("linear regression, 50", "digits, MLP 64-32", "digits, MLP 64-200")
ROUNDS = 20


def scenario(task: dict[str, Any], together: int, devices: int) -> Any:
    from muster.common.config import validate
    from muster.emulator.scenario.scenario import Scenario

    return validate(
        Scenario,
        {
            "name": "together",
            "task": task,
            "training": {**TRAINING, "together": together},
            "server": {"rounds": ROUNDS, "evaluate_every": ROUNDS},
            "groups": [{"name": "d", "count": devices, "devices_per_process": devices // 2}],
        },
        "benchmark",
    )


def training(task: dict[str, Any], turns: int) -> dict[str, float]:
    """CPU microseconds of a device's local step, one after the other and at the same time."""
    from muster.client.training.local import train
    from muster.client.training.together import Job, train_together
    from muster.tasks.parts import vector_of

    read = scenario(task, DEVICES, DEVICES)
    opened, settings = read.task.open(DEVICES, 1), read.training
    module = opened.module()
    received = vector_of(module)
    jobs = [Job(f"d-{index}", opened.client(index)) for index in range(DEVICES)]
    width = max(settings.minibatch(len(job.examples)) for job in jobs)

    def alone() -> None:
        named: dict[str, Any] = {"seed": 1, "round": 1, "base_version": 0}
        for job in jobs:
            train(opened, module, received, job.examples, settings, client=job.client, **named)

    def together() -> None:
        train_together(opened, module, received, jobs, settings, width=width, seed=1, round=1)

    ways: dict[str, Callable[[], None]] = {"alone": alone, "together": together}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns + 1):
        for name, way in ways.items():
            began = time.process_time()
            way()
            took = time.process_time() - began
            times[name].append(1e6 * took / DEVICES / TRAINING["local_steps"])
    return {"parameters": len(received), **_compared(times, warm=1)}


def run(task: dict[str, Any], together: int) -> tuple[float, float]:
    """Seconds of a round after the first, and CPU seconds of all processes of the run."""
    muster = Path(sys.executable).with_name("muster")
    with tempfile.TemporaryDirectory() as parent:
        path, folder = Path(parent) / "scenario.toml", Path(parent) / "run"
        path.write_text(scenario(task, together, 1_000).to_toml())
        before = _children_s()
        command: list[str | Path] = [muster, "run", path, "--out", folder, "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        used = _children_s() - before
        lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    commits = [line["at"] for line in lines if line["event"] == "round_committed"]
    return (commits[-1] - commits[0]) / (len(commits) - 1), used


def whole_runs(task: dict[str, Any], turns: int) -> dict[str, float]:
    rounds: dict[str, list[float]] = {"alone": [], "together": []}
    cpu: dict[str, list[float]] = {"alone": [], "together": []}
    for _ in range(turns):
        for name, together in (("alone", 1), ("together", DEVICES)):
            round_s, cpu_s = run(task, together)
            rounds[name].append(round_s)
            cpu[name].append(cpu_s)
    found = _compared(rounds)
    return {**found, **{f"{name}_cpu_s": statistics.median(cpu[name]) for name in cpu}}


def _compared(times: dict[str, list[float]], warm: int = 0) -> dict[str, float]:
    kept = {name: values[warm:] for name, values in times.items()}
    pairs = zip(kept["alone"], kept["together"], strict=True)
    found = {name: statistics.median(values) for name, values in kept.items()}
    return {**found, "ratio": statistics.median(alone / together for alone, together in pairs)}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--runs", type=int, default=3, help="whole runs of each kind")
    parser.add_argument("--out", type=Path, default=HERE / "out/together.json")
    parser.add_argument("--data", type=Path, help="folder with FashionMNIST/")
    settings = parser.parse_args()
    works = {**WORKS}
    if settings.data is not None:
        images = {"name": "fashion-mnist", "data": {"directory": str(settings.data)}}
        for name, model in LARGER.items():
            works[f"fashion, {name}"] = {**images, **model}
    torch.set_num_threads(1)
    found: dict[str, Any] = {"training": {}, "runs": {}}
    print(f"{'local step of a device':26} parameters {'alone':>9} {'together':>9} {'ratio':>7}")
    for name, task in works.items():
        one = found["training"][name] = training(task, settings.turns)
        print(
            f"{name:26} {one['parameters']:10,} {one['alone']:6.1f} µs {one['together']:6.1f} µs "
            f"{one['ratio']:7.1f}",
            flush=True,
        )
    print(
        f"\n{'1,000 devices, a round':26} {'alone':>9} {'together':>9} {'ratio':>7}  CPU of the run"
    )
    for name in RUNS if settings.runs else ():
        one = found["runs"][name] = whole_runs(WORKS[name], settings.runs)
        print(
            f"{name:26} {one['alone']:7.2f} s {one['together']:7.2f} s {one['ratio']:7.1f}  "
            f"{one['alone_cpu_s']:.1f} and {one['together_cpu_s']:.1f} s",
            flush=True,
        )
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

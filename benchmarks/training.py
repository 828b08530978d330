"""What muster adds to training: a local step, and a whole run, beside plain PyTorch loops.

python benchmarks/training.py                 # local steps of small models on digits
python benchmarks/training.py --data DIR      # on Fashion-MNIST, and a run of 100 devices

The loops are what one would write by hand for the same work: the same model, data, size of the
minibatches and number of steps, plain SGD, one thread. Times are CPU seconds, which other work on
the machine disturbs less. muster and the loop take turns; ratios are medians over pairs of turns.
The CPU time of a run is that of all its processes, from the command to the report.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from processes import ProcessorTimes

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples/fashion-mnist-100.toml"

MODELS: dict[str, dict[str, Any]] = {
    "softmax": {"model": "softmax"},
    "MLP, 200": {"model": "mlp", "hidden": [200]},
    "MLP, 200-100": {"model": "mlp", "hidden": [200, 100]},
}
RATE, BATCH, STEPS = 0.1, 20, 200

_PR_SET_CHILD_SUBREAPER = 36


def opened(settings: Mapping[str, Any]) -> Any:
    """The task of a scenario of 100 devices."""
    from muster.common.config import validate
    from muster.emulator.scenario.scenario import Scenario

    groups = [{"name": "phones", "count": 100}]
    server = {"rounds": 1}
    scenario = {"name": "training", "task": dict(settings), "server": server, "groups": groups}
    return validate(Scenario, scenario, "benchmark").task.open(100, 1)


def by_hand(module: Any, x: Any, y: Any, batches: Iterator[Any]) -> None:
    """Train with a loop as one writes it."""
    import torch
    from torch.nn.functional import cross_entropy

    module.train()
    parameters, losses = list(module.parameters()), []
    for batch in batches:
        loss = cross_entropy(module(x[batch]), y[batch])
        for parameter in parameters:
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(parameter.grad, alpha=-RATE)
        losses.append(loss.item())


def shuffled(examples: int, steps: int) -> Iterator[Any]:
    """The rows of as many minibatches, in a new order for every epoch."""
    import torch

    while steps > 0:
        yield from torch.split(torch.randperm(examples), BATCH)[:steps]
        steps -= -(-examples // BATCH)


def cpu_s(work: Callable[[], object]) -> float:
    """The CPU seconds that this process takes for it."""
    began = time.process_time()
    work()
    return time.process_time() - began


def step(task: Any, turns: int) -> dict[str, float]:
    """The CPU time of a local step with muster and by hand, microseconds."""
    import torch

    from muster.client.training.local import train
    from muster.client.training.settings import Training
    from muster.tasks.parts import vector_of

    module, other, examples = task.module(), task.module(), task.client(0)
    received = vector_of(module)
    settings = Training(learning_rate=RATE, batch_size=BATCH, local_steps=STEPS)
    x, y = torch.from_numpy(examples.x), torch.from_numpy(examples.y)
    named: dict[str, Any] = {"seed": 1, "client": "a", "round": 1, "base_version": 0}
    works: dict[str, Callable[[], object]] = {
        "muster": lambda: train(task, module, received, examples, settings, **named),
        "by hand": lambda: by_hand(other, x, y, shuffled(len(examples), STEPS)),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(turns):
        for name, work in works.items():
            times[name].append(1e6 * cpu_s(work) / STEPS)
    del times["muster"][0], times["by hand"][0]  # the first turns also warm the caches
    pairs = zip(times["muster"], times["by hand"], strict=True)
    found = {name: statistics.median(values) for name, values in times.items()}
    return {**found, "ratio": statistics.median(ours / theirs for ours, theirs in pairs)}


def whole_run(data: Path) -> dict[str, Any]:
    """CPU seconds of all processes of a run of the example, also by program, those of its steps by
    hand, and the seconds of its rounds."""
    # Processes whose parent ends before them become children of this process, which waits for them.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    muster = Path(sys.executable).with_name("muster")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        before, times = _children_s(), ProcessorTimes()
        subprocess.run(
            [muster, "run", EXAMPLE, "--data", data, "--out", folder, "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        used, programs = _children_s() - before, times.end()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            steps, loop_s = pool.apply(steps_by_hand, (folder, data))
        summary = json.loads((folder / "summary.json").read_text())
    found: dict[str, Any] = {"muster": used, "by hand": loop_s, "ratio": used / loop_s}
    return {**found, "steps": steps, "rounds_s": summary["seconds"], "programs": programs}


def steps_by_hand(folder: Path, data: Path) -> tuple[int, float]:
    """Take the local steps of a run in a loop; return their number, and CPU seconds."""
    import torch

    from muster.emulator.records.account import Account
    from muster.emulator.scenario.reading import read_scenario

    torch.set_num_threads(1)
    scenario = read_scenario(EXAMPLE, data=str(data))
    task = scenario.task.open(100, scenario.seed)
    with Account(folder) as account:
        clients = account.contributions["client"].tolist()
    places = [int(client.rpartition("-")[2]) for client in clients]
    shares = [task.client(place) for place in places]
    epochs = scenario.training.local_epochs or 1
    steps = [epochs * -(-len(share) // BATCH) for share in shares]

    def loop() -> None:
        for share, number in zip(shares, steps, strict=True):
            x, y = torch.from_numpy(share.x), torch.from_numpy(share.y)
            by_hand(task.module(), x, y, shuffled(len(share), number))

    return sum(steps), cpu_s(loop)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with FashionMNIST/")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--runs", type=int, default=1, help="whole runs, with --data")
    parser.add_argument("--out", type=Path, default=HERE / "out/training.json")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    data_set: dict[str, Any] = {"name": "digits"}
    if settings.data is not None:
        data_set = {"name": "fashion-mnist", "data": {"directory": str(settings.data)}}
    found: dict[str, Any] = {"steps": {}, "runs": []}
    print(f"{'local step, ' + data_set['name']:28} {'muster':>9} {'by hand':>9} {'ratio':>7}")
    for name, model in MODELS.items():
        measured = step(opened({**data_set, **model}), settings.turns)
        found["steps"][name] = measured
        ours, theirs = measured["muster"], measured["by hand"]
        print(f"{name:28} {ours:6.0f} µs {theirs:6.0f} µs {measured['ratio']:7.2f}", flush=True)
    for _ in range(settings.runs if settings.data is not None else 0):
        whole = whole_run(settings.data)
        found["runs"].append(whole)
        print(
            f"{EXAMPLE.name}: {whole['muster']:.1f} s of CPU, {whole['steps']:,.0f} steps by "
            f"hand {whole['by hand']:.1f} s, ratio {whole['ratio']:.2f}; "
            f"{whole['rounds_s']:.1f} s in rounds",
            flush=True,
        )
        for name, seconds in whole["programs"].items():
            print(f"  {seconds:6.1f} s  {name}", flush=True)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    settings.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

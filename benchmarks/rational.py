"""The cost of rational devices: how long the server solves, and where the time of a round goes.

python benchmarks/rational.py            # two tables, benchmarks/out/rational.json (two minutes)
python benchmarks/rational.py --quick    # smaller fleets, fewer rounds

The first table solves problem 7 for the utilities of N devices that change from round to round. The
first round also compiles the problem. The second table plays rounds of ten devices, with a model
of 167,178 parameters, in one process and one thread, and times the functions that evaluate
utilities, train and solve. The rest is transfer, folding and the ledger. It is compared with a
fleet without rational devices that trains as much. Times are CPU seconds, so that other work on the
machine hardly disturbs them.
"""

import argparse
import json
import pkgutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).parent
STRATEGIES, CONCENTRATION = 5, 0.5


def solver_seconds(devices: int, rounds: int) -> list[float]:
    """Return the CPU seconds of solving in each round, for utilities like those of devices."""
    import numpy as np

    from muster.server.knowledge.strategies import Strategies, StrategyProblem, solve
    from muster.server.knowledge.utilities import Utilities

    draws, seconds = np.random.default_rng(devices), []
    c, b = draws.uniform(0.4, 0.9, devices), draws.uniform(-0.2, 0.6, devices)
    for _ in range(rounds):
        a = draws.uniform(0.01, 1.0, devices)
        at_equal = -a / devices**2 + b / devices + c
        threshold = at_equal + draws.uniform(-0.05, 0.05, devices)
        mixture = draws.dirichlet(np.full(STRATEGIES, CONCENTRATION)).clip(1e-9)
        began = time.process_time()
        some = StrategyProblem(Utilities(a, b, c, threshold), mixture / mixture.sum())
        found = solve(some)
        seconds.append(time.process_time() - began)
        assert isinstance(found, Strategies), found
    return seconds


def scenario(rounds: int, *, rational: bool) -> Any:
    """Return the scenario of ten devices, with feduca or with fedavg."""
    from muster.common.config import validate
    from muster.emulator.scenario.scenario import Scenario

    utility = {"test": "fitted", "threshold": "weight", "largest_weight": 0.5}
    group: dict[str, Any] = {"name": "institute", "count": 10, "devices_per_process": 10}
    if rational:
        group["participation"] = {"kind": "rational", "utility": utility}
    table = {
        "name": "rational",
        "task": {
            "name": "digits",
            "model": "mlp",
            "hidden": [512, 256],
            "validation_ratio": 0.3,
            "partition": {"kind": "class-groups"},
        },
        "training": {"local_epochs": 5, "batch_size": 32, "learning_rate": 0.1},
        "server": {
            "rounds": rounds,
            "evaluate_every": rounds,
            "aggregator": {"kind": "feduca", "strategies": STRATEGIES} if rational else "fedavg",
        },
        "groups": [group],
    }
    return validate(Scenario, table, "benchmark")


@contextmanager
def timed(seconds: dict[str, float], name: str, target: str) -> Iterator[None]:
    """Add to `seconds[name]` the CPU time that is spent in a function, named as for `patch`."""
    where, _, attribute = target.rpartition(".")
    owner = pkgutil.resolve_name(where)
    original: Callable[..., Any] = getattr(owner, attribute)

    def measured(*args: Any, **kwargs: Any) -> Any:
        began = time.process_time()
        try:
            return original(*args, **kwargs)
        finally:
            seconds[name] += time.process_time() - began

    with patch.object(owner, attribute, measured):
        yield


PARTS: Mapping[str, tuple[str, ...]] = {
    "utilities": (
        "muster.client.device.rational.ModelJudge.decide",
        "muster.client.device.rational.ModelJudge.conclude",
    ),
    "training": ("muster.client.device.learner.train",),
    "solving": ("muster.server.aggregators.feduca.solve",),
}


def split(rounds: int, *, rational: bool) -> dict[str, float]:
    """Return the CPU milliseconds of a round, and of its parts, in one process."""
    from muster.simulation.whole_run import simulate_run

    seconds: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        simulate_run(scenario(2, rational=rational), Path(folder) / "warm-up")
        for name, targets in PARTS.items():
            for target in targets:
                stack.enter_context(timed(seconds, name, target))
        ends = []
        for number in (rounds, 2 * rounds):  # the difference has no start and no end
            before, began = dict(seconds), time.process_time()
            simulate_run(scenario(number, rational=rational), Path(folder) / f"{number}")
            round_s = time.process_time() - began
            took = {name: seconds[name] - before.get(name, 0.0) for name in PARTS}
            ends.append({**took, "round": round_s})
    each = {name: 1000 * (ends[1][name] - ends[0][name]) / rounds for name in ends[0]}
    return {**each, "rest": each["round"] - sum(each[name] for name in PARTS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "out/rational.json")
    options = parser.parse_args()
    began = time.process_time()
    from muster.server.knowledge.solvers import cvxpy_module

    cvxpy_module()
    print(f"importing cvxpy: {time.process_time() - began:.2f} s")
    found: dict[str, Any] = {"solver": {}, "rounds": {}}
    print("devices   first round, CPU ms   later rounds, CPU ms (median, highest)")
    for devices in (10, 50) if options.quick else (10, 50, 100, 500):
        first, *later = solver_seconds(devices, 5 if options.quick else 31)
        found["solver"][devices] = {"first": first, "later": later}
        middle, highest = 1000 * statistics.median(later), 1000 * max(later)
        print(f"{devices:7}{1000 * first:22.0f}{middle:23.1f}{highest:10.1f}", flush=True)
    print("CPU ms a round of 10 devices: all, utilities, training, solving, the rest")
    for name, rational in (("fedavg", False), ("feduca", True)):
        each = split(4 if options.quick else 20, rational=rational)
        found["rounds"][name] = each
        keys = ("round", *PARTS, "rest")
        print(f"  {name:8}" + "".join(f"{each[key]:10.1f}" for key in keys), flush=True)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

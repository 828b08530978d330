"""The cost of rules that resist wrong updates: the seconds of a round over real sockets, and the
CPU seconds of the rule alone.

Clients send normal random numbers, so that no two updates are equal. The clients share two
processes, and what they do is the same with every rule.

python benchmarks/robust.py                  # 100 clients, 100,000 parameters: a table,
                                             # benchmarks/out/robust.json
python benchmarks/robust.py 30 1000000 8     # clients, parameters, rounds; 0 rounds: the rule alone
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RULES = ("fedavg", "median", "trimmed-mean", "krum", "multi-krum", "bulyan")
WARM_UP = 2
"""Rounds before the measured ones, in which processes still import modules."""


def send_noise(
    task: Any, module: Any, received: Any, examples: Any, settings: Any, *,
    seed: int, client: str, round: int, base_version: int,
) -> Any:  # fmt: skip
    """A trainer that does not train."""
    import numpy as np

    from muster.client.training.trainer import Trained
    from muster.common.seeds import stream

    random = stream(seed, "noise", client, round)
    return Trained(random.standard_normal(len(received), np.float32), len(examples.x), 0.0, 0)


def measure(rule: str, clients: int, parameters: int, rounds: int) -> list[float]:
    """Return the seconds from the end of one round to the end of the next, of every round."""
    # The server, the nursery and the evaluation import task and trainer by name from this folder.
    os.environ["PYTHONPATH"] = str(HERE)
    sys.path.insert(0, str(HERE))
    from muster.common.config import validate
    from muster.emulator import run
    from muster.emulator.scenario.scenario import Scenario

    together = -(-clients // 2)
    scenario = validate(
        Scenario,
        {
            "name": f"robust-{rule}",
            "task": {"name": "echo:Echo", "parameters": parameters},
            "training": {"local_steps": 0, "trainer": "robust:send_noise"},
            "server": {
                "rounds": rounds + WARM_UP,
                "evaluate_every": rounds + WARM_UP,
                "aggregator": rule,
            },
            "groups": [{"name": "echo", "count": clients, "devices_per_process": together}],
        },
        "benchmark",
    )
    with tempfile.TemporaryDirectory() as folder:
        done = run(scenario, out=Path(folder) / "run")
        closed = list(done.ledger.rounds["closed_at"])[WARM_UP - 1 :]
    return [after - before for before, after in pairwise(closed)]


def alone(rule: str, clients: int, parameters: int) -> float:
    """Return the CPU seconds in which the server computes what the rule adds to the model, from
    updates in memory."""
    import time

    import numpy as np

    from muster.common.exact_sum import ExactSum, Term
    from muster.server.aggregators import (
        AGGREGATORS,
        Aggregator,
        Cohort,
        Combining,
        Contribution,
        Need,
    )
    from muster.server.aggregators.blocks import combined, squared_distances
    from muster.server.knowledge.participation import ParticipationHistory
    from muster.server.knowledge.population import Oracle, Population

    updates = np.random.default_rng(1).standard_normal((clients, parameters), np.float32)
    reads: list[Any] = [lambda start, stop, row=row: row[start:stop] for row in updates]
    names = [f"client-{number:04d}" for number in range(clients)]
    known = Population(names, (), [{} for _ in names], {}, {}, Oracle())
    contributions = [Contribution(name, "g", 1, 0) for name in names]
    aggregator = AGGREGATORS.parse(rule)
    assert isinstance(aggregator, Aggregator)
    began, distances = time.process_time(), None
    if Need.DISTANCES in aggregator.needs():
        distances = squared_distances(reads, parameters)
    cohort = Cohort(1, contributions, known, ParticipationHistory(), distances)
    weights = aggregator.weigh(cohort, {}).weights
    if isinstance(aggregator, Combining):
        taken = [read for read, weight in zip(reads, weights, strict=True) if weight]
        combined(taken, parameters, lambda block: aggregator.combine(block, clients))
    else:
        terms = zip(reads, weights, strict=True)
        ExactSum(parameters).add_terms([Term(read, weight, 10.0) for read, weight in terms])
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", type=int, help="clients parameters rounds")
    parser.add_argument("--out", type=Path, default=HERE / "out/robust.json")
    options = parser.parse_args()
    clients, parameters, rounds = options.case or (100, 100_000, 8)
    print(f"{clients} clients, {parameters:,} parameters; seconds a round (median of {rounds}), "
          f"CPU seconds of the rule (least of 3)")  # fmt: skip
    found = {}
    for rule in RULES:
        seconds = measure(rule, clients, parameters, rounds) if rounds else [math.nan]
        least = min(alone(rule, clients, parameters) for _ in range(3))
        found[rule] = {"rounds": seconds, "rule": least}
        print(f"  {rule:12} {statistics.median(seconds):8.3f} {least:8.3f}", flush=True)
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps({"case": [clients, parameters, rounds], **found}, indent=1))


if __name__ == "__main__":
    main()

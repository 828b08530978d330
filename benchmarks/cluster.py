"""The same scenario on nodes of Ray and on one machine, and the time until the devices of a node
that was killed are back.

python benchmarks/cluster.py                    # examples/digits.toml, 1, 2 and 4 nodes
python benchmarks/cluster.py SCENARIO --nodes 2 --set server.rounds=100

The nodes are raylets on this machine, so what is found is the cost of the backend, and not what
more machines are worth. It needs the extra `ray`.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STORE_BYTES = 80_000_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("scenario", nargs="?", type=Path, default=HERE / "../examples/digits.toml")
    options.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 4])
    options.add_argument("--set", dest="settings", action="append", default=[])
    options.add_argument("--out", type=Path, default=HERE / "out/cluster.json")
    given = options.parse_args()

    from muster.emulator.scenario.reading import read_scenario

    settings = ["launch.restarts=1000", *given.settings]
    scenario = read_scenario(given.scenario, tuple(settings), None)
    found = {"processes": measure(scenario, "processes")}
    for number in given.nodes:
        with nodes(number):
            found[f"{number} nodes"] = measure(scenario, "ray")
    with nodes(2) as cluster:
        found["one of 2 nodes dies"] = lose(scenario, cluster)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1))
    if len(models := {each["model"] for each in found.values()}) != 1:
        sys.exit(f"the models differ: {models}")


@contextmanager
def nodes(number: int) -> Iterator[Any]:
    """A cluster with a number of nodes, each with a logical core."""
    import ray
    from ray.cluster_utils import Cluster

    settings = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    head = {**settings, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        for _ in range(number - 1):
            cluster.add_node(**settings)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def measure(scenario: Any, backend: Any, kill: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run a scenario, and find its times and its model.

    Args:
        kill: called once, after five rounds.

    Returns:
        seconds until the first round, seconds of all rounds, and with `kill` the seconds from then
        until the fleet knew of a death, and until the next round was committed.
    """
    from muster.emulator import run

    killed: list[float] = []

    def show(event: dict[str, Any]) -> None:
        if kill and not killed and event["event"] == "round_committed" and event["round"] == 5:
            killed.append(time.time())
            kill()

    started = time.time()
    with tempfile.TemporaryDirectory() as made:
        done = run(scenario, out=Path(made) / "run", backend=backend, report=False, show=show)
        opened, *_ = (event["at"] for event in done.ledger.events("round_opened"))
        committed = [event["at"] for event in done.ledger.events("round_committed")]
        found = {
            "to_first_round_s": opened - started,
            "rounds_s": committed[-1] - opened,
            "model": done.summary["model_sha256"],
        }
        for at in killed:
            deaths = [event["at"] for event in done.ledger.events("died")]
            found["noticed_s"] = min(deaths) - at
            found["back_s"] = min(each for each in committed if each > max(deaths)) - at
    print(backend, json.dumps(found), flush=True)
    return found


def lose(scenario: Any, cluster: Any) -> dict[str, Any]:
    """Run a scenario on two nodes, and kill the one that is not the head."""
    (victim,) = cluster.worker_nodes
    return measure(scenario, "ray", lambda: cluster.remove_node(victim, allow_graceful=False))


if __name__ == "__main__":
    main()

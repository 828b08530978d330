"""One run of the Flower app in fashion/, which knows nothing of muster, under one of four systems:

- flower: Flower's own simulation engine, with Ray;
- muster: muster's devices train, and its fedavg makes the versions;
- packs: the same, with all devices in two processes;
- strategy: muster's devices train, and the app's own strategy makes the versions.

The work is the same: the data of a node are in a file of their own, a tenth of the nodes trains in
a round, and nothing is evaluated before the end. A round of Flower is the time from one call of
Strategy.configure_train to the next, one of muster from one commit to the next. The CPU time is
that of all processes, and depends less on what else the machine does.

Run with the interpreter of .bench-peers/same-app; the last line of stdout is one JSON object.
"""

import argparse
import importlib
import importlib.metadata
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from flower_legacy import WARM_UP_ROUNDS, PeerError, print_outcome, result

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from processes import cpu_s, tree  # noqa: E402  (they lie in the folder above)

APP = HERE / "fashion"
NODES = 100
PER_ROUND = 10

Config = dict[str, bool | int | float | str]


@dataclass
class Rounds:
    """What a system did.

    Attributes:
        stamps: when each round began and the last ended, in seconds.
        cpu_s: CPU seconds of all processes until then.
        tensors: those of the last model.
    """

    stamps: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    tensors: dict[str, Any] = field(default_factory=dict)

    def note(self) -> None:
        """Note that a round begins or that the last ends."""
        self.stamps.append(time.perf_counter())
        used = 0.0
        for pid in tree(os.getpid()):
            with suppress(OSError):  # it has ended
                used += cpu_s(pid)
        self.cpu_s.append(used)


System = Callable[[Path, Config], Rounds]
"""Runs the app, with a folder for its files and a run config; returns what it did."""


def write_data(folder: Path) -> int:
    """Write the pictures of Fashion-MNIST in MUSTER_DATA: those of each node, drawn at random
    without replacement, and those of the test. Return 1 if there are none."""
    import numpy as np

    from muster.common.errors import ConfigError
    from muster.tasks.datasets import idx
    from muster.tasks.files import directory_of

    try:
        data = idx("fashion-mnist", directory_of("fashion-mnist", None))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    order = np.random.default_rng(0).permutation(len(data.train_y))
    for node, share in enumerate(np.array_split(order, NODES)):
        np.savez(folder / f"{node}.npz", x=data.train_x[share], y=data.train_y[share])
    np.savez(folder / "test.npz", x=data.test_x, y=data.test_y)
    return 0


def run_flower(folder: Path, config: Config, *, cpus: float) -> Rounds:
    """Run the app as `flwr run` does it with a simulation, but without a SuperLink beside it.

    Args:
        cpus: those that Ray reserves for a ClientApp; two of them train beside each other on two
            cores if each has one.
    """
    os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_HOME=str(folder / "home"))
    sys.path.insert(0, str(APP))
    from flwr.app import Context, RecordDict
    from flwr.common.config import get_fused_config_from_dir
    from flwr.common.constant import SUPERLINK_NODE_ID
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.constant import NOOP_FEDERATION_ID
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.supercore.telemetry import EventType

    done = Rounds()
    configure, aggregate, start = FedAvg.configure_train, FedAvg.aggregate_train, FedAvg.start

    def stamped_configure(strategy: FedAvg, *given: Any, **named: Any) -> Any:
        done.note()
        return configure(strategy, *given, **named)

    def checked_aggregate(strategy: FedAvg, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        if (good := sum(not reply.has_error() for reply in replies)) != PER_ROUND:
            raise PeerError(f"round {server_round}: {good} of {PER_ROUND} results")
        return aggregate(strategy, server_round, replies)

    def stamped_start(strategy: FedAvg, *given: Any, **named: Any) -> Any:
        ended = start(strategy, *given, **named)
        done.note()
        done.tensors.update(ended.arrays.to_torch_state_dict())
        return ended

    FedAvg.configure_train, FedAvg.aggregate_train = stamped_configure, checked_aggregate
    FedAvg.start = stamped_start
    run = Run.create_empty(run_id=1)
    run.primary_task_id, run.federation_id, run.override_config = 1, NOOP_FEDERATION_ID, config
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
    _run_simulation(
        num_supernodes=NODES,
        exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
        client_app_attr="fashion_app.client_app:app",
        server_app_attr="fashion_app.server_app:app",
        server_app_context=Context(
            run_id=1,
            node_id=SUPERLINK_NODE_ID,
            node_config={},
            state=RecordDict(),
            run_config=get_fused_config_from_dir(APP, config),
        ),
        backend_config={"client_resources": {"num_cpus": cpus, "num_gpus": 0.0}},
        app_dir=str(APP),
        is_app=True,
        run=run,
    )
    return done


def run_muster(
    folder: Path, config: Config, *, rule: Mapping[str, Any], together: int = 1
) -> Rounds:
    """Run the app on muster's devices.

    Args:
        rule: the keys of `[server]` that say who makes the versions.
        together: the number of devices in a process.
    """
    from safetensors.torch import load_file

    from muster.common.config import validate
    from muster.emulator import run
    from muster.emulator.scenario.scenario import Scenario

    scenario = validate(
        Scenario,
        {
            "name": "same-app",
            "seed": config["seed"],
            "task": {"name": "flower", "app": str(APP), "examples": 600, "run_config": config},
            "server": {"rounds": config["num-server-rounds"], **rule},
            "groups": [{"name": "nodes", "count": NODES, "devices_per_process": together}],
        },
        "benchmark",
    )
    done = Rounds()

    def show(event: Mapping[str, Any]) -> None:
        if event["event"] == "round_committed":
            done.note()

    ended = run(scenario, out=folder / "run", show=show, show_every_s=0.01, report=False)
    updates = ended.ledger.contributions.query("outcome == 'folded'").groupby("round").size()
    if ended.status != "completed" or set(updates) != {PER_ROUND}:
        raise PeerError(f"the run is {ended.status}, with {dict(updates)} updates in its rounds")
    # The commit of a round begins the next; a journal is shown a little later than it is written.
    done.stamps = list(ended.ledger.rounds["closed_at"])
    done.tensors.update(load_file(ended.folder / "model.safetensors"))
    return done


FEDAVG = {"aggregator": {"kind": "fedavg"}, "selection": {"kind": "uniform", "k": PER_ROUND}}
STRATEGY = {"aggregator": {"kind": "flower"}}


def accuracy_of(tensors: Mapping[str, Any], config: Config) -> float:
    """The accuracy of a model on the pictures of the test, as the app measures it."""
    sys.path.insert(0, str(APP))
    task = importlib.import_module("fashion_app.task")
    network = task.make_network(config["network"])
    network.load_state_dict(tensors)
    return float(task.test(network, task.load_data(config["data"], "test")))


def measure(name: str, system: System, config: Config) -> dict[str, Any]:
    """Run the app; the seconds are those from the first import to the end of the run."""
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder:
        began = time.perf_counter()
        done = system(Path(folder), config)
        seconds = time.perf_counter() - began
    rounds = len(done.cpu_s) - 1
    warm = min(WARM_UP_ROUNDS, rounds // 3)
    return result(
        name,
        network=config["network"],
        stamps=done.stamps,
        seconds=seconds,
        round_cpu_s=(done.cpu_s[-1] - done.cpu_s[warm]) / (rounds - warm),
        accuracy=accuracy_of(done.tensors, config),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("system", choices=["data", "flower", "muster", "packs", "strategy"])
    parser.add_argument("data", type=Path, help="folder of the data, which `data` writes")
    parser.add_argument("--network", choices=["mlp", "cnn"], default="mlp")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpus", type=float, default=1.0, help="that Ray reserves for a ClientApp")
    options = parser.parse_args()
    if options.system == "data":
        return write_data(options.data)
    version = importlib.metadata.version("flwr")
    systems: dict[str, tuple[str, System]] = {
        "flower": (f"flwr {version} simulation", partial(run_flower, cpus=options.cpus)),
        "muster": ("muster, its fedavg", partial(run_muster, rule=FEDAVG)),
        "packs": (
            "muster, its fedavg, two processes",
            partial(run_muster, rule=FEDAVG, together=NODES // 2),
        ),
        "strategy": ("muster, the app's FedAvg", partial(run_muster, rule=STRATEGY)),
    }
    config: Config = {
        "data": str(options.data.absolute()),
        "network": options.network,
        "num-server-rounds": options.rounds,
        "seed": options.seed,
    }
    return print_outcome(lambda: measure(*systems[options.system], config))


if __name__ == "__main__":
    raise SystemExit(main())

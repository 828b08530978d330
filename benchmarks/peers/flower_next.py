"""One case of rounds under the newest flwr: a SuperLink, SuperNodes and an app.

The same work as flower_legacy.py: clients return what they received, with one example each.
Flower keeps its own settings, among them its polling intervals and subprocess isolation (a new
process per ClientApp task). Only the installation of an app's dependencies is off. A round is the
time from one call of Strategy.configure_train to the next; the peak of memory is that of the
SuperLink plus that of the ServerApp, which are two processes.

Run with the interpreter of .bench-peers/flwr-next; the last line of stdout is one JSON object.
This file is also the app: a copy of it, with flower_legacy.py, is what Flower distributes.
"""

import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flower_legacy import (
    PeerError,
    Processes,
    case_arguments,
    free_ports,
    peak_rss_mib,
    print_outcome,
    result,
    wait_for_port,
)
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

APP = """\
[project]
name = "echo"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "muster"

[tool.flwr.app.components]
serverapp = "flower_next:server_app"
clientapp = "flower_next:client_app"

[tool.flwr.app.config]
clients = {clients}
parameters = {parameters}
rounds = {rounds}
answer = {answer}
"""
CONNECTION = """\
[superlink]
default = "bench"

[superlink.bench]
address = "127.0.0.1:{port}"
insecure = true
"""

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Return the model as it came."""
    metrics = MetricRecord({"num-examples": 1})
    content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
    return Message(content=content, reply_to=message)


class StampedFedAvg(FedAvg):  # type: ignore[misc]
    """FedAvg that notes when each round starts and when the last one ends."""

    def __init__(self, clients: int, rounds: int) -> None:
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=clients,
            min_evaluate_nodes=clients,
            min_available_nodes=clients,
        )
        self.clients = clients
        self.rounds = rounds
        self.stamps: list[float] = []
        self.peak_rss_mib = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.stamps.append(time.perf_counter())
        return super().configure_train(server_round, arrays, config, grid)  # type: ignore[no-any-return]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        good = sum(not reply.has_error() for reply in replies)
        if good != self.clients:
            raise PeerError(f"round {server_round}: {good} of {self.clients} results")
        aggregate = super().aggregate_train(server_round, replies)
        if server_round == self.rounds:
            self.stamps.append(time.perf_counter())
            self.peak_rss_mib = peak_rss_mib()
        return aggregate  # type: ignore[no-any-return]


def run_rounds(grid: Grid, clients: int, parameters: int, rounds: int) -> dict[str, Any]:
    def model() -> Any:  # made twice rather than kept: the peak is to be Flower's
        return np.random.default_rng(0).standard_normal(parameters, dtype=np.float32)

    while len(list(grid.get_node_ids())) < clients:
        time.sleep(0.5)
    strategy = StampedFedAvg(clients, rounds)
    final = strategy.start(grid, ArrayRecord([model()]), num_rounds=rounds)
    (aggregate,) = final.arrays.to_numpy_ndarrays()
    if not np.allclose(aggregate, model(), rtol=1e-5):
        raise PeerError("the aggregate is not the model that was sent")
    return {"stamps": strategy.stamps, "peak_rss_mib": strategy.peak_rss_mib}


@server_app.main()  # type: ignore[untyped-decorator]
def serve(grid: Grid, context: Context) -> None:
    """Run all rounds and leave the answer, or the reason why there is none, in a file."""
    case = context.run_config
    answer = Path(str(case["answer"]))
    try:
        said = run_rounds(grid, int(case["clients"]), int(case["parameters"]), int(case["rounds"]))
    except Exception as failure:
        said = {"failure": f"{type(failure).__name__}: {failure}"}
        raise
    finally:
        unfinished = answer.with_suffix(".part")
        unfinished.write_text(json.dumps(said), encoding="utf-8")
        unfinished.rename(answer)


def lay_out(folder: Path, port: int, clients: int, parameters: int, rounds: int) -> None:
    """Write the app and Flower's own configuration; Flower's home is inside the folder."""
    app = folder / "app"
    app.mkdir()
    for name in ("flower_legacy.py", "flower_next.py"):
        shutil.copy(Path(__file__).with_name(name), app)
    text = APP.format(
        clients=clients,
        parameters=parameters,
        rounds=rounds,
        answer=json.dumps(str(folder / "answer.json")),
    )
    (app / "pyproject.toml").write_text(text, encoding="utf-8")
    (folder / "home").mkdir()
    (folder / "home" / "config.toml").write_text(CONNECTION.format(port=port), encoding="utf-8")


def wait_for_answer(answer: Path, processes: Processes, timeout_s: float) -> dict[str, Any]:
    """What the ServerApp has left.

    Raises:
        PeerError: a process failed, the ServerApp failed, or the time was up.
    """
    deadline = time.monotonic() + timeout_s
    while not answer.exists():
        processes.require()
        if time.monotonic() > deadline:
            raise PeerError(f"no answer after {timeout_s:g} s\n{processes.tail('superlink')}")
        time.sleep(0.2)
    said: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "failure" in said:
        raise PeerError(f"{said['failure']}\n{processes.tail('superlink')}")
    return said


def measure(clients: int, parameters: int, rounds: int, timeout_s: float) -> dict[str, Any]:
    """Run one case in processes of its own.

    Raises:
        PeerError: a process failed, or the time was up.
    """
    programs = Path(sys.executable).parent
    port, *node_ports = free_ports(1 + clients)
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as name:
        folder = Path(name)
        lay_out(folder, port, clients, parameters, rounds)
        env = {
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_HOME": str(folder / "home"),
            # SuperLink and SuperNodes start further programs of Flower by name.
            "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        }
        with Processes(folder) as processes:
            began = time.perf_counter()
            superlink = processes.start(
                "superlink",
                [
                    str(programs / "flower-superlink"),
                    "--insecure",
                    "--disable-runtime-dependency-installation",
                    f"--port={port}",
                ],
                env,
            )
            wait_for_port(port, processes)
            for index, node_port in enumerate(node_ports):
                processes.start(
                    f"supernode-{index}",
                    [
                        str(programs / "flower-supernode"),
                        "--insecure",
                        f"--superlink=127.0.0.1:{port}",
                        f"--port={node_port}",
                    ],
                    env,
                )
            processes.start("run", [str(programs / "flwr"), "run", str(folder / "app")], env)
            said = wait_for_answer(folder / "answer.json", processes, timeout_s)
            seconds = time.perf_counter() - began
            peak = said["peak_rss_mib"] + peak_rss_mib(superlink.pid)
    return result(
        f"flwr {importlib.metadata.version('flwr')} SuperLink",
        clients=clients,
        parameters=parameters,
        stamps=said["stamps"],
        server_peak_rss_mib=peak,
        seconds=seconds,
    )


def main() -> int:
    options = case_arguments(__doc__, timeout_s=1800.0).parse_args()
    case = options.clients, options.parameters, options.rounds, options.timeout
    return print_outcome(lambda: measure(*case))


if __name__ == "__main__":
    raise SystemExit(main())

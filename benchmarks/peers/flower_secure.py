"""One case of rounds under the newest flwr with its SecAgg+ workflow, in its simulation engine.

Clients return what they received, with one example each. The simulation is the faster of Flower's
two engines: messages stay in one process and in Ray's memory, and are polled for every 0.1 s. With
a SuperLink, each of the four stages of a sum would wait for intervals of seconds. Flower keeps its
own settings, except for those of the sum, which are arguments. A round is the time from one call of
Strategy.configure_fit to the next, after a first round in which Ray's processes import Flower.

Run with the interpreter of .bench-peers/flwr-next; the last line of stdout is one JSON object.
"""

import importlib.metadata
import os
import tempfile
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from flower_legacy import PeerError, case_arguments, print_outcome, result
from flwr.app import Context, Message
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import recorddict_to_proto
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

CLIPPING_RANGE = 1.0


class Echo(NumPyClient):  # type: ignore[misc]
    def fit(self, parameters: Any, config: Any) -> tuple[Any, int, dict[str, Any]]:
        return parameters, 1, {}


class StampedFedAvg(FedAvg):  # type: ignore[misc]
    """FedAvg that notes when each round starts and when the last one ends: one more than it is to
    measure."""

    def __init__(self, clients: int, rounds: int, model: Any) -> None:
        super().__init__(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=clients,
            min_evaluate_clients=clients,
            min_available_clients=clients,
            initial_parameters=ndarrays_to_parameters([model]),
        )
        self.clients = clients
        self.rounds = rounds
        self.stamps: list[float] = []
        self.final: Any = None

    def configure_fit(self, server_round: int, *given: Any, **named: Any) -> Any:
        self.stamps.append(time.perf_counter())
        return super().configure_fit(server_round, *given, **named)

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        if failures or len(results) != self.clients:
            raise PeerError(f"round {server_round}: {len(results)} of {self.clients} results")
        aggregate, metrics = super().aggregate_fit(server_round, results, failures)
        # The opened sum is float64; clients of a float32 model would get twice the bytes.
        (self.final,) = (array.astype(np.float32) for array in parameters_to_ndarrays(aggregate))
        if server_round == self.rounds + 1:
            self.stamps.append(time.perf_counter())
        return ndarrays_to_parameters([self.final]), metrics


class MeasuredGrid:
    """A grid that adds up what clients send in the first round, whose time does not count.

    Attributes:
        sent_bytes: of the serialised contents of their messages, without Flower's metadata.
    """

    def __init__(self, grid: Grid) -> None:
        self.sent_bytes = 0
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Message], **named: Any) -> list[Message]:
        replies = list(self._grid.send_and_receive(messages, **named))
        for reply in replies:
            if reply.has_error():
                raise PeerError(f"a client failed: {reply.error.reason}")
            if reply.metadata.group_id == "1":
                self.sent_bytes += recorddict_to_proto(reply.content).ByteSize()
        return replies


def measure(
    clients: int, parameters: int, rounds: int, shares: int, threshold: int, bits: int
) -> dict[str, Any]:
    """Run one case; Ray's processes end with it.

    Args:
        shares: of each secret, one of which its device keeps.
        threshold: shares that open a secret.
        bits: of an entry of the heaviest update.

    Raises:
        PeerError: a client failed, or the model is not the one that was sent.
    """
    model = np.random.default_rng(0).uniform(-CLIPPING_RANGE, CLIPPING_RANGE, parameters)
    strategy = StampedFedAvg(clients, rounds, model.astype(np.float32))
    server_app, grids = ServerApp(), []

    @server_app.main()  # type: ignore[untyped-decorator]
    def serve(grid: Grid, context: Context) -> None:
        grids.append(MeasuredGrid(grid))
        sums = SecAggPlusWorkflow(
            shares,
            threshold,
            max_weight=1.0,
            clipping_range=CLIPPING_RANGE,
            quantization_range=2**bits,
        )
        legacy = LegacyContext(context, ServerConfig(num_rounds=rounds + 1), strategy)
        DefaultWorkflow(fit_workflow=sums)(grids[0], legacy)

    began = time.perf_counter()
    run_simulation(
        server_app,
        ClientApp(lambda context: Echo().to_client(), mods=[secaggplus_mod]),
        num_supernodes=clients,
        # Each of a machine's cores runs a client; Flower's own default would leave half unused.
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    seconds = time.perf_counter() - began
    if len(strategy.stamps) != rounds + 2:
        raise PeerError(f"{len(strategy.stamps) - 1} of {rounds + 1} rounds have a sum")
    if not np.allclose(strategy.final, model, atol=1e-5):
        raise PeerError("the aggregate is not the model that was sent")
    return result(
        f"flwr {importlib.metadata.version('flwr')} SecAgg+, simulation",
        stamps=strategy.stamps[1:],
        seconds=seconds,
        clients=clients,
        parameters=parameters,
        bytes_up_of_device=grids[0].sent_bytes / clients,
    )


def main() -> int:
    parser = case_arguments(__doc__, timeout_s=1800.0)
    parser.add_argument("--shares", type=int, default=10)
    parser.add_argument("--threshold", type=int, default=6)
    parser.add_argument("--bits", type=int, default=28)
    options = parser.parse_args()
    sharing = options.shares, options.threshold, options.bits
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as home:
        os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_HOME=home, RAY_USAGE_STATS_ENABLED="0")
        return print_outcome(
            lambda: measure(options.clients, options.parameters, options.rounds, *sharing)
        )


if __name__ == "__main__":
    raise SystemExit(main())

"""One case of rounds under flwr 1.11.1: start_server and real start_client processes.

Clients return what they received, with one example each, so a round costs only what the
framework costs. Flower keeps its own settings: its thread pool, its logging, its message
limits. A round is the time from one call of Strategy.configure_fit to the next.

Run with the interpreter of .bench-peers/flwr-1.11.1; the last line of stdout is one JSON object.
The upper half (processes, ports, the shape of the result) is shared with the other peers.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SYSTEM = "flwr 1.11.1 start_server"
MESSAGE_LIMIT = 512 * 1024 * 1024  # Flower's default, in bytes
WARM_UP_ROUNDS = 3


class PeerError(Exception):
    """A peer could not be measured; the message carries the end of its logs."""


class Processes:
    """Child processes that end with the block, however the block ends.

    Each child leads its own session, so a terminal's Ctrl-C reaches only the parent, which
    then ends them in order. A mark in the environment finds the ones that left their session.
    """

    def __init__(self, logs: Path, grace_s: float = 5.0) -> None:
        self._logs = logs
        self._grace_s = grace_s
        self._mark = f"MUSTER_BENCH_{uuid.uuid4().hex}=1"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A second Ctrl-C must not leave children behind: the end takes at most twice the grace.
        with ignored(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for signum in (signal.SIGTERM, signal.SIGKILL):
                self._signal_all(signum)
                deadline = time.monotonic() + self._grace_s
                while self._alive() and time.monotonic() < deadline:
                    time.sleep(0.05)

    def start(
        self, name: str, command: Sequence[str], env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a child; its stdout and stderr go to NAME.out and NAME.log."""
        mark, _, value = self._mark.partition("=")
        with self.output(name).open("wb") as out, self.log(name).open("wb") as log:
            self._children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env={**os.environ, **(env or {}), mark: value},
                start_new_session=True,
            )
        return self._children[name]

    def output(self, name: str) -> Path:
        return self._logs / f"{name}.out"

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def require(self) -> None:
        """Check that no child has failed.

        Raises:
            PeerError: one has ended with a status other than zero.
        """
        for name, child in self._children.items():
            if child.poll():
                raise PeerError(f"{name} ended with status {child.returncode}\n{self.tail(name)}")

    def wait(self, name: str, timeout_s: float, watch: Callable[[], object] = lambda: None) -> None:
        """Wait for one child to end while the others do not fail.

        Args:
            watch: called again and again.

        Raises:
            PeerError: a child failed, or the time was up.
        """
        deadline = time.monotonic() + timeout_s
        while self._children[name].poll() is None:
            self.require()
            if time.monotonic() > deadline:
                raise PeerError(f"{name} did not end within {timeout_s:g} s\n{self.tail(name)}")
            watch()
            time.sleep(0.05)
        self.require()

    def tail(self, name: str, lines: int = 30) -> str:
        texts = [
            path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            for path in (self.output(name), self.log(name))
        ]
        return "\n".join(line for text in texts for line in text)

    def _alive(self) -> bool:
        running = any(child.poll() is None for child in self._children.values())
        return running or any(self._marked())

    def _signal_all(self, signum: signal.Signals) -> None:
        # The mark first: those that have their own session can be found only as themselves.
        marked = list(self._marked())
        for child in self._children.values():
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signum)
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def _marked(self) -> Iterator[int]:
        """Processes that carry the mark (Linux; nothing elsewhere)."""
        mark = self._mark.encode()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in environ.read_bytes().split(b"\0"):
                    yield int(environ.parent.name)


@contextlib.contextmanager
def ignored(*signums: signal.Signals) -> Iterator[None]:
    """Leave the signals without effect for the length of the block."""
    before = [signal.signal(signum, signal.SIG_IGN) for signum in signums]
    try:
        yield
    finally:
        for signum, handler in zip(signums, before, strict=True):
            signal.signal(signum, handler)


def stop_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into SystemExit, so that every finally and with block runs."""

    def stop(signum: int, frame: object) -> None:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)


def free_ports(count: int) -> list[int]:
    """Different ports on 127.0.0.1 that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in sockets]


def wait_for_port(port: int, processes: Processes, timeout_s: float = 120.0) -> None:
    """Return once something listens on the port.

    Raises:
        PeerError: a child failed, or the time was up.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        processes.require()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise PeerError(f"nothing listens after {timeout_s:g} s") from None
            time.sleep(0.05)


def peak_rss_mib(pid: int | str = "self") -> float:
    """The most memory a process has held at once, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise PeerError(f"process {pid} shows no VmHWM")


def print_outcome(measure: Callable[[], dict[str, Any]]) -> int:
    """Measure, print the outcome as a line of JSON, and return the exit status."""
    stop_on_signals()
    try:
        outcome = measure()
    except PeerError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(outcome))
    return 0


def result(
    system: str, *, stamps: Sequence[float], seconds: float, **measured: Any
) -> dict[str, Any]:
    """The JSON object every peer prints.

    Args:
        stamps: the start of each round and the end of the last, in seconds. The first few
            rounds are left out of the median and the mean.
        seconds: the whole case, with starting the processes.
        measured: the rest.
    """
    rounds = len(stamps) - 1
    counted = [1000 * (later - earlier) for earlier, later in pairwise(stamps)]
    counted = counted[min(WARM_UP_ROUNDS, rounds // 3) :]
    return {
        "system": system,
        **measured,
        "rounds": rounds,
        "round_ms_median": round(statistics.median(counted), 3),
        "round_ms_mean": round(statistics.fmean(counted), 3),
        "seconds": round(seconds, 2),
    }


def case_arguments(description: str | None, *, timeout_s: float) -> argparse.ArgumentParser:
    """The flags that every peer understands."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--parameters", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=timeout_s, help="seconds for the case")
    return parser


# Below: flwr 1.11.1 only. It is imported where it is used, because the parent of the processes
# and the other peers do without it.


def serve(port: int, clients: int, parameters: int, rounds: int) -> None:
    """The server process: runs all rounds, then prints its stamps and its peak memory."""
    import numpy as np
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import ServerConfig, start_server
    from flwr.server.strategy import FedAvg

    stamps: list[float] = []
    peak = 0.0

    def model() -> Any:  # made twice rather than kept: the peak is to be Flower's
        return np.random.default_rng(0).standard_normal(parameters, dtype=np.float32)

    class StampedFedAvg(FedAvg):  # type: ignore[misc]
        def configure_fit(
            self, server_round: int, parameters: Any, client_manager: Any
        ) -> list[tuple[Any, Any]]:
            client_manager.wait_for(clients)  # at once, but before the first round
            stamps.append(time.perf_counter())
            return super().configure_fit(server_round, parameters, client_manager)  # type: ignore[no-any-return]

        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            if failures or len(results) != clients:
                raise PeerError(f"round {server_round}: {len(results)} of {clients} results")
            aggregate = super().aggregate_fit(server_round, results, failures)
            if server_round == rounds:
                nonlocal peak
                stamps.append(time.perf_counter())
                peak = peak_rss_mib()
                # Outside the measurement: the mean of equal models is the model.
                (final,) = parameters_to_ndarrays(aggregate[0])
                if not np.allclose(final, model(), rtol=1e-5):
                    raise PeerError("the aggregate is not the model that was sent")
            return aggregate

    start_server(
        server_address=f"127.0.0.1:{port}",
        config=ServerConfig(num_rounds=rounds),
        strategy=StampedFedAvg(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=clients,
            min_evaluate_clients=clients,
            min_available_clients=clients,
            initial_parameters=ndarrays_to_parameters([model()]),
        ),
        grpc_max_message_length=max(MESSAGE_LIMIT, 8 * parameters),
    )
    print(json.dumps({"stamps": stamps, "server_peak_rss_mib": peak}), flush=True)


def take_part(port: int, parameters: int) -> None:
    """One client process: returns every model as it came."""
    from flwr.client import NumPyClient, start_client

    class Echo(NumPyClient):  # type: ignore[misc]
        def fit(self, parameters: Any, config: Any) -> tuple[Any, int, dict[str, Any]]:
            return parameters, 1, {}

    start_client(
        server_address=f"127.0.0.1:{port}",
        client=Echo().to_client(),
        grpc_max_message_length=max(MESSAGE_LIMIT, 8 * parameters),
        insecure=True,
    )


def fork_clients(port: int, clients: int, parameters: int) -> None:
    """Fork the client processes from one that has imported Flower but opened nothing.

    A hundred imports of Flower would take longer than the rounds; nothing of gRPC runs yet
    at the time of the fork.
    """
    import flwr.client  # noqa: F401

    children = set()
    for _ in range(clients):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                take_part(port, parameters)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.add(pid)
    while children:
        pid, status = os.wait()
        children.discard(pid)
        if status:
            raise PeerError(f"a client process ended with {os.waitstatus_to_exitcode(status)}")


def measure(clients: int, parameters: int, rounds: int, timeout_s: float) -> dict[str, Any]:
    """Run one case in processes of its own.

    Raises:
        PeerError: the server or a client failed, or the time was up.
    """
    (port,) = free_ports(1)
    size = (str(port), str(clients), str(parameters), str(rounds))
    with (
        tempfile.TemporaryDirectory(prefix="bench-peers-") as folder,
        Processes(Path(folder)) as processes,
    ):
        # Even with telemetry off, Flower writes an identifier into the home folder.
        env = {"FLWR_TELEMETRY_ENABLED": "0", "HOME": folder}
        began = time.perf_counter()
        processes.start("server", [sys.executable, __file__, "--as", "server", *size], env)
        wait_for_port(port, processes)
        processes.start("clients", [sys.executable, __file__, "--as", "clients", *size], env)
        processes.wait("server", timeout_s)
        seconds = time.perf_counter() - began
        said = json.loads(processes.output("server").read_text().splitlines()[-1])
    return result(SYSTEM, clients=clients, parameters=parameters, seconds=seconds, **said)


def main() -> int:
    if sys.argv[1:2] == ["--as"]:
        role, port, clients, parameters, rounds = sys.argv[2], *map(int, sys.argv[3:])
        if role == "server":
            serve(port, clients, parameters, rounds)
        else:
            fork_clients(port, clients, parameters)
        return 0
    options = case_arguments(__doc__, timeout_s=1800.0).parse_args()
    case = options.clients, options.parameters, options.rounds, options.timeout
    return print_outcome(lambda: measure(*case))


if __name__ == "__main__":
    raise SystemExit(main())

"""The server's program: `python -m muster.server RUN_FOLDER`.

It reads `setup/server.json` and runs the rounds that the ledger does not have yet. The exit status
is 0 if the run has ended (completed, diverged or stopped), and 1 if it failed.
"""

import asyncio
import logging
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from muster.common.clock import Clock, WallClock
from muster.common.credentials import EVALUATION, CredentialsFile
from muster.common.errors import MusterError, reason_of
from muster.common.garbage import rarely_collect
from muster.common.processes import use_batch_scheduling
from muster.server.evaluation.evaluator import RemoteEvaluation
from muster.server.program import ServerEnvironment, serve
from muster.server.runtime.beside import ForkedProcess, ProcessBeside, SpawnedProcess
from muster.server.settings.process import ServerProcess
from muster.wire.transport import GrpcTransport

log = logging.getLogger("muster.server")


def on_this_machine() -> ServerEnvironment:
    """Return the environment of a real server: this machine's clock, network and signals."""
    clock = WallClock()
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ServerEnvironment(
        clock, GrpcTransport, sqlite3.connect, _evaluation(clock), _stop_on_signal, descriptors,
        _strategy,
    )  # fmt: skip


def _evaluation(clock: Clock) -> Callable[[ServerProcess, Path], ProcessBeside]:
    def choose(config: ServerProcess, folder: Path) -> ProcessBeside:
        if config.evaluation is not None:
            credentials = CredentialsFile(folder / config.credentials).current()
            return RemoteEvaluation(config.evaluation, credentials, clock)
        module = "muster.server.evaluation.process"
        if config.nursery is not None:
            return ForkedProcess(config.nursery, module, EVALUATION)
        return SpawnedProcess(module, folder / f"logs/{EVALUATION}.log")

    return choose


def _strategy(folder: Path) -> ProcessBeside:
    return SpawnedProcess("muster.server.strategy.process", folder / "logs/strategy.log")


def _stop_on_signal(stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def _serve(folder: Path) -> int:
    return await serve(folder, on_this_machine())


def main() -> None:
    use_batch_scheduling()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    rarely_collect()
    try:
        status = uvloop.run(_serve(Path(sys.argv[1])))
    except (MusterError, OSError, sqlite3.Error) as error:
        log.error("%s", reason_of(error))
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()

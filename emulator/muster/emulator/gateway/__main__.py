"""A gateway's program: `python -m muster.emulator.gateway`, with GatewayProcess as a line of JSON
on standard input.

If `config.ready` is set, the program writes its ports to that file once all of them are open. It
ends on SIGTERM with status 0. If ports cannot be opened, it ends with status 1 and a sentence in
its log.
"""

import asyncio
import logging
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from muster.common.clock import WallClock
from muster.common.credentials import CredentialsFile
from muster.common.errors import LaunchFailed, MusterError
from muster.common.files import write_atomic
from muster.common.garbage import rarely_collect
from muster.emulator.gateway.config import GatewayProcess, Ports
from muster.emulator.gateway.control import ControlService
from muster.emulator.gateway.gateway import Gateway
from muster.emulator.gateway.ports import connections_of_a_link
from muster.wire.connections.encryption import require_encrypted

log = logging.getLogger("muster.gateway")


async def serve(config: GatewayProcess) -> None:
    """Run the gateway until SIGTERM.

    Raises:
        ConfigError: a trace or the gateway's credentials cannot be read, the server's address is
            not host:port, or the gateway would listen without TLS where others could listen in.
        LaunchFailed: a port cannot be opened.
    """
    clock, stopped = WallClock(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    source = CredentialsFile(Path(config.credentials))
    require_encrypted(config.host, source.current().tls)  # of what the devices' ports forward
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    gateway = Gateway(config, clock, connections_of_a_link(len(config.devices), files))
    control = ControlService(gateway, clock, source)
    try:
        ports = gateway.listen()
        server = await control.listen()
    except OSError as error:
        raise LaunchFailed(_why_not(config, error)) from None
    lease = asyncio.create_task(control.keep_lease())
    where = Ports(host=config.host, control=server.number, devices=ports)
    if config.ready is not None:
        write_atomic(Path(config.ready), where.to_json().encode())
    rarely_collect()
    await stopped.wait()
    lease.cancel()
    server.close()
    gateway.close()


def _why_not(config: GatewayProcess, error: OSError) -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"the gateway of {config.group!r} cannot open {len(config.devices) + 1} ports on "
        f"{config.host}: {error.strerror or error}; it may have {limit} open files, but needs one "
        f"for each device and two for each connection"
    )


def _open_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    _open_many_files()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        uvloop.run(serve(GatewayProcess.from_json(sys.stdin.buffer.readline())))
    except MusterError as error:
        log.error("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()

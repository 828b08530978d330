"""Serves the live page of a run until it is told to stop."""

import logging
import socket
import threading
from contextlib import suppress
from pathlib import Path

import uvicorn

from muster.common.clock import Clock
from muster.common.garbage import rarely_collect
from muster.emulator.live.app import live_app
from muster.emulator.live.follower import Follower
from muster.emulator.live.page_address import PageAddress

_GRACE_S = 2


def serve(folder: Path, listening: socket.socket, address: PageAddress, clock: Clock) -> None:
    """Serve the page of the run in a folder until SIGTERM or Ctrl-C.

    Raises:
        ConfigError: the folder's scenario cannot be read.
    """
    rarely_collect()
    follower = Follower(folder, clock)
    stopped = threading.Event()
    server: uvicorn.Server | None = None

    def stopping() -> bool:
        return server is not None and server.should_exit

    config = uvicorn.Config(
        live_app(follower, address, clock, stopping),
        log_level=logging.WARNING,
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = uvicorn.Server(config)
    following = threading.Thread(target=follower.follow, args=[stopped], daemon=True)
    following.start()
    try:
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal again when it has ended
            server.run(sockets=[listening])
    finally:
        stopped.set()

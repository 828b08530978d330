"""Where a live page can be seen, and the tokens that it asks for."""

import secrets
import socket
from dataclasses import dataclass, field

from muster.common.errors import ConfigError
from muster.common.files import os_reason

HOST = "127.0.0.1"
_TOKEN_BYTES = 16


@dataclass(frozen=True)
class PageAddress:
    """The address of a live page.

    Attributes:
        token: part of the address; who knows it may look.
        operator: what actions need in addition.
    """

    port: int
    token: str = field(repr=False)
    operator: str = field(repr=False)

    @property
    def url(self) -> str:
        """The page, for who may look."""
        return f"http://{HOST}:{self.port}/{self.token}/"


def open_port(port: int) -> tuple[socket.socket, PageAddress]:
    """Listen on this machine's loopback, and draw the tokens of a page.

    Args:
        port: 0 for any that is free.

    Raises:
        ConfigError: the port cannot be opened.
    """
    listening = socket.socket(socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"--port {port} cannot be opened: {os_reason(error)}; give another, or none"
        ) from None
    tokens = [secrets.token_urlsafe(_TOKEN_BYTES) for _ in range(2)]
    return listening, PageAddress(listening.getsockname()[1], *tokens)

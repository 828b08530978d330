"""Live pages of real runs, for tests."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]


class Page:
    """A live page, as its program has described it."""

    def __init__(self, lines: IO[str]) -> None:
        self.url, self.operator = (lines.readline().rstrip().rpartition(": ")[2] for _ in range(2))
        _, _, self.host, self.token, _ = self.url.split("/")

    def ask(
        self, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        with closing(connection):
            connection.request(
                "GET" if body is None else "POST",
                f"/{self.token if token is None else token}/{path}",
                None if body is None else json.dumps(body),
                {name.replace("_", "-"): value for name, value in headers.items()},
            )
            reply = connection.getresponse()
            return reply.status, reply.read()

    def frames(self) -> Iterator[dict[str, Any]]:
        """The frames, until the page's program ends."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        with closing(connection):
            connection.request("GET", f"/{self.token}/events")
            reply = connection.getresponse()
            assert reply.status == 200
            for line in reply:
                if line.startswith(b"data: ") and line.strip() != b"data: {}":
                    yield json.loads(line.removeprefix(b"data: "))


def start(planned: Path, *options: str, new_session: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*MUSTER, "run", str(planned), "--quiet", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=new_session,
    )


@contextmanager
def shown_by(*arguments: str) -> Iterator[Page]:
    """The page that a command shows until Ctrl-C."""
    with subprocess.Popen([*MUSTER, *arguments], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            yield Page(program.stdout)
        finally:
            program.send_signal(signal.SIGINT)
            assert program.wait(120) == 0

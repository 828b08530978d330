"""Starts the live page beside a run, in a process of its own."""

import importlib.util
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import Field

from muster.common.config import Section
from muster.common.errors import ConfigError
from muster.common.installation import install_command
from muster.common.processes import child_command, child_environment
from muster.emulator.live.page_address import PageAddress, open_port

_PATIENCE_S = 5.0


class PageProcess(Section):
    """The settings of the page's program.

    Attributes:
        file: the descriptor of the socket that listens.
    """

    folder: str
    file: int
    token: str = Field(repr=False)
    operator: str = Field(repr=False)


def require_extra() -> None:
    """Check that the packages of the page are installed.

    Raises:
        ConfigError: they are not.
    """
    missing = [name for name in ("starlette", "uvicorn") if not importlib.util.find_spec(name)]
    if missing:
        raise ConfigError(
            f"the live page needs {' and '.join(missing)}; install muster with its extra `live`: "
            f"{install_command('live')}"
        )


def described(address: PageAddress) -> list[str]:
    """Lines for a person: where the page is, and what actions need."""
    return [
        f"live page: {address.url}",
        f"to act on the run, the page asks for the operator's token: {address.operator}",
    ]


@contextmanager
def page_beside(port: int) -> Iterator[tuple[PageAddress, Callable[[Path], None]]]:
    """Open the port of a page. Yield its address, and a function that starts the page's program for
    a run folder. The program ends with the body; if it dies before, nothing else happens.

    Raises:
        ConfigError: the extra is not installed, or the port cannot be opened.
    """
    require_extra()
    listening, address = open_port(port)
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> None:
        config = PageProcess(
            folder=str(folder),
            file=listening.fileno(),
            token=address.token,
            operator=address.operator,
        )
        with (folder / "logs/live.log").open("ab") as log:
            program = subprocess.Popen(
                child_command("muster.emulator.live"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[listening.fileno()],
                env=child_environment(),
                start_new_session=True,  # Ctrl-C is for the run, which then ends this program
            )
        started.append(program)
        assert program.stdin is not None
        with suppress(BrokenPipeError):
            program.stdin.write(config.to_json().encode() + b"\n")
            program.stdin.close()
        listening.close()

    try:
        yield address, start
    finally:
        listening.close()
        for program in started:
            program.terminate()
            try:
                program.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:  # for example, it was stopped by a signal
                program.kill()
                program.wait()

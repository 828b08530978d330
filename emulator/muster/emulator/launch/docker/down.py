"""Ending a fleet that Docker keeps, whatever started it and whatever became of that.

What belongs to a fleet is found by its label (`launch.daemon`).
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker.errors

from muster.common.clock import WallClock
from muster.common.errors import ConfigError
from muster.emulator.launch.docker.daemon import (
    connected,
    containers_of,
    folders_of,
    hand_over,
    keep_log,
    name_of,
    remove_all,
)
from muster.emulator.runs.conclusion import conclude
from muster.emulator.runs.run_folder import own, run_folder

Say = Callable[[str], None]

_GOODBYE_S = 20
"""Patience with a server that was asked to end: it finishes its books, and devices hear of it."""


def down(folder: Path, say: Say = print) -> dict[str, Any] | None:
    """End the fleet of a run folder and leave nothing of it in Docker; what the run came to.

    Whatever started it, and whatever became of that: what is there is found by its label. None:
    there is no ledger yet.

    Raises:
        ConfigError: there is no run folder, or another muster is at work in it.
    """
    folder = run_folder(folder)
    with own(folder):
        end(folder, say)
        concluded = conclude(folder)
        if concluded is None:
            return None
        summary, account = concluded
        account.close()
        return summary


def down_all(say: Say = print) -> int:
    """End all fleets of this machine's Docker; how many containers and networks there were."""
    with connected() as client:
        folders, there = folders_of(client)
    for folder in folders:
        if folder.is_dir():
            with suppress(ConfigError):  # no run folder any more, or one whose muster lives
                down(folder, say)
    with connected() as client:
        remove_all(client, None, WallClock())
    return there


def end(folder: Path, say: Say) -> None:
    """Have the server end the run, keep the logs, remove everything, take the files back."""
    with connected() as client:
        there = containers_of(client, folder)
        if any(name_of(each) == "server" and each.status == "running" for each in there):
            say("ending the run")
            _stop_server(client, folder)
        if there:
            say(f"removing {len(there)} containers")
        for container in there:
            keep_log(container, folder)
        remove_all(client, folder, WallClock())
    hand_over(folder, (os.geteuid(), os.getegid()))


def _stop_server(client: docker.DockerClient, folder: Path) -> None:
    """Its run becomes `stopped`, as by `muster stop`; the devices hear it and leave."""
    for container in containers_of(client, folder):
        if name_of(container) == "server":
            # Docker's own end of patience is a SIGKILL, which the ledger survives.
            with suppress(docker.errors.APIError):
                container.stop(timeout=_GOODBYE_S)

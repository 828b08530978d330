"""`muster down`: ends a fleet in Docker, no matter what started it or how that command ended.

The containers and networks of a fleet are found by their label (`launch.docker.daemon`).
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import docker.errors

from muster.common.clock import WallClock
from muster.common.errors import ConfigError, RunFailed
from muster.emulator.credentials.issuing import remove_credentials
from muster.emulator.launch.docker.compose_command import Say
from muster.emulator.launch.docker.daemon import (
    connected,
    containers_of,
    folders_of,
    keep_logs,
    name_of,
    remove_all,
    services_of,
    take_back,
)
from muster.emulator.run_folder.folder import has_detached_supervisor, own, run_folder
from muster.emulator.run_folder.supervisor_socket import end_supervisor
from muster.emulator.runs.conclusion import conclude

_GOODBYE_S = 20
"""Seconds to wait for a server that was asked to end. It commits its ledger and tells the devices
that the run is over."""


def down(folder: Path, say: Say = print) -> dict[str, Any] | None:
    """End the fleet of a run folder, and remove all its containers and networks from Docker.

    It does not matter what started the fleet or how that command ended, because containers and
    networks are found by their label.

    Returns:
        The summary of the run, or None if there is no ledger yet.

    Raises:
        ConfigError: there is no run folder, or `muster run` is under way in it.
        RunFailed: the fleet's supervisor does not end.
    """
    folder = run_folder(folder)
    if has_detached_supervisor(folder):
        say("ending the run")
        end_supervisor(folder, WallClock())
    with own(folder):
        end(folder, say)
        concluded = conclude(folder)
        if concluded is None:
            return None
        summary, account = concluded
        account.close()
        return summary


def down_all(say: Say = print) -> int:
    """End all fleets in this machine's Docker; return how many containers and networks there
    were."""
    with connected() as client:
        folders, there = folders_of(client)
    for folder in folders:
        if folder.is_dir():
            with suppress(ConfigError, RunFailed):  # no run folder any more, or locked
                down(folder, say)
    with connected() as client:
        remove_all(client, None, WallClock())
    return there


def end(folder: Path, say: Say) -> None:
    """Have the server end the run, keep the logs, remove everything from Docker, and take back
    ownership of the files."""
    with connected() as client:
        there = containers_of(client, folder)
        if any(name_of(each) == "server" and each.status == "running" for each in there):
            say("ending the run")
            _stop_server(client, folder)
        if there:
            say(f"removing {len(services_of(client, folder) or there)} containers")
        keep_logs(client, folder)
        remove_all(client, folder, WallClock())
    take_back(folder)
    remove_credentials(folder)


def _stop_server(client: docker.DockerClient, folder: Path) -> None:
    """Stop the server. Its run ends with the status `stopped`, as with `muster stop`, and the
    devices are told and leave."""
    for container in containers_of(client, folder):
        if name_of(container) == "server":
            # After the timeout Docker sends SIGKILL, which the ledger survives.
            with suppress(docker.errors.APIError):
                container.stop(timeout=_GOODBYE_S)

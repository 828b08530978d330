"""Ending a fleet that Docker keeps, whatever started it and whatever became of that.

What belongs to a fleet is found by its label, and by the name of its compose project; neither the
compose file nor a compose command is needed.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import docker
import docker.errors

from muster.common.errors import ConfigError, LaunchFailed, LedgerError
from muster.emulator.folder import own, run_folder
from muster.emulator.launch import containers
from muster.emulator.launch.compose import FOLDER_LABEL, NAME_LABEL

Say = Callable[[str], None]

_PROJECT_LABEL = "com.docker.compose.project"
_SERVICE_LABEL = "com.docker.compose.service"

_GOODBYE_S = 20
"""Patience with a server that was asked to end: it finishes its books, and devices hear of it."""

_SWEEPS = 20
_SWEEP_S = 0.5


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
        return conclude(folder)


def down_all(say: Say = print) -> int:
    """End all fleets of this machine's Docker; how many containers and networks there were."""
    with connected() as client:
        there = [
            *_labelled(client, FOLDER_LABEL),
            *client.networks.list(filters={"label": FOLDER_LABEL}),
        ]
        folders = sorted({_labels(each)[FOLDER_LABEL] for each in there})
    for folder in map(Path, folders):
        if folder.is_dir():
            with suppress(ConfigError):  # no run folder any more, or one whose muster lives
                down(folder, say)
    with connected() as client:
        _sweep(partial(containers.remove_leftovers, client, None))
    return len(there)


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
            _keep_log(container, folder)
        _sweep(partial(_remove, client, folder))
    hand_over(folder, (os.geteuid(), os.getegid()))


def _stop_server(client: docker.DockerClient, folder: Path) -> None:
    """Its run becomes `stopped`, as by `muster stop`; the devices hear it and leave."""
    for container in containers_of(client, folder):
        if name_of(container) == "server":
            # Docker's own end of patience is a SIGKILL, which the ledger survives.
            with suppress(docker.errors.APIError):
                container.stop(timeout=_GOODBYE_S)


def _keep_log(container: Any, folder: Path) -> None:
    with suppress(docker.errors.APIError):
        text = container.logs()
        with open(folder / "logs" / f"{name_of(container)}.log", "ab") as log:
            log.write(text)


def _remove(client: docker.DockerClient, folder: Path) -> int:
    """Remove what has the folder's label, and what somebody added to the compose file's project."""
    found = containers.remove_leftovers(client, folder)
    label = f"{_PROJECT_LABEL}={containers.project_of(folder)}"
    others = _labelled(client, label)
    for container in others:
        with suppress(docker.errors.NotFound):
            container.remove(force=True, v=True)
    kept: list[Any] = [
        *client.networks.list(filters={"label": label}),
        *client.volumes.list(filters={"label": label}),
    ]
    for each in kept:
        with suppress(docker.errors.NotFound):
            each.remove()
    return found + len(others) + len(kept)


def _sweep(remove: Callable[[], int]) -> None:
    """Remove until there is nothing: a command that was killed may have left orders under way.

    Raises:
        LaunchFailed: something cannot be removed.
    """
    why: object = "there is always more"
    for _ in range(_SWEEPS):
        try:
            if remove() == 0:
                return
        except docker.errors.APIError as error:
            why = error.explanation or error
            time.sleep(_SWEEP_S)
    raise LaunchFailed(f"Docker does not remove all of it: {why}")


def conclude(folder: Path) -> dict[str, Any] | None:
    """Write summary and report from the ledger, if there is one."""
    if not (folder / "ledger.sqlite").exists():
        return None
    from muster.emulator.account import Account
    from muster.emulator.report import write_report
    from muster.emulator.summary import summarise, write_summary

    try:
        account = Account(folder)
    except LedgerError:
        return None
    with account:
        summary = summarise(account)
    write_summary(folder, summary)
    write_report(folder)
    return summary


def hand_over(folder: Path, user: tuple[int, int]) -> None:
    """Give the run folder to a user; only root can, and only root needs to."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            with suppress(FileNotFoundError):  # a ledger's companion, gone with its server
                os.chown(path, *user, follow_symlinks=False)


# --- Docker --------------------------------------------------------------------------------------


@contextmanager
def connected() -> Iterator[docker.DockerClient]:
    """Docker's client, closed in the end."""
    client = containers.connect()
    try:
        yield client
    finally:
        client.close()


def containers_of(client: docker.DockerClient, folder: Path) -> list[Any]:
    """The containers of a run folder, also those that have ended."""
    return _labelled(client, f"{FOLDER_LABEL}={folder}")


def _labelled(client: docker.DockerClient, label: str) -> list[Any]:
    found: list[Any] = client.containers.list(
        all=True, filters={"label": label}, ignore_removed=True
    )
    return found


def name_of(container: Any) -> str:
    """What its log is called after."""
    labels = container.labels
    return str(labels.get(NAME_LABEL) or labels.get(_SERVICE_LABEL) or container.name)


def _labels(thing: Any) -> dict[str, str]:
    """Of a container, or a network."""
    found = thing.attrs.get("Labels") or thing.attrs.get("Config", {}).get("Labels") or {}
    return dict(found)

"""Runs whose programs encrypt their connections, and where their secrets can be found."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.chaos.run_processes import kill_process, run_processes
from muster.common.credentials import SECRETS, Credentials, read_credentials
from muster.emulator import Run, run
from muster.emulator.run_folder.control import server_status

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

GROUPS = [
    {
        "name": "wifi",
        "count": 2,
        "link": {"profile": "wifi"},
        "shared_link": {"slots": 1, "overflow": "queue"},
    },
    {"name": "pack", "count": 4, "devices_per_process": 2},
]
PROGRAMS = {
    "server",
    "operator",
    "supervisor",
    "evaluation",
    "gateway/wifi",
    "gateway/pack",
    "device/wifi-0000",
    "device/wifi-0001",
    "device/pack-0000..pack-0001",
    "device/pack-0002..pack-0003",
}

KILLED = {10: "server", 20: "pack-0000..pack-0001"}
"""Programs that are killed, by the round after which."""


def secrets_of(folder: Path) -> dict[str, Credentials]:
    """The credentials of a running fleet, by program."""
    found = [read_credentials(path) for path in (folder / SECRETS).rglob("*.json")]
    return {credentials.name: credentials for credentials in found}


def traces_of(credentials: Credentials) -> list[bytes]:
    """Bytes that occur where a secret is: the token in both forms, and a line of the key."""
    key = [] if credentials.tls is None else [credentials.tls.key.splitlines()[1].encode()]
    return [credentials.token.encode(), bytes.fromhex(credentials.token), *key]


def shown_by(folder: Path) -> dict[int, bytes]:
    """The arguments and the environment of every process of a run, by its number."""
    found = {}
    for process in run_processes(folder):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found[process.pid] = b"".join(
                Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ")
            )
    return found


def kill_with_log(log: Path, folder: Path) -> None:
    """Kill the process of a run that writes this log."""
    for process in run_processes(folder):
        with suppress(FileNotFoundError, ProcessLookupError):
            file = os.readlink(f"/proc/{process.pid}/fd/2")
            if file == str(log) and process.part != "other":
                kill_process(process, folder)


def test_mutual_tls_changes_no_bit_and_no_secret_is_left_or_shown(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    seen: dict[str, Credentials] = {}
    shown, events = dict[int, bytes](), list[dict[str, Any]]()

    def look(event: dict[str, Any]) -> None:
        """After the first round read all secrets and what processes show; kill some later."""
        events.append(event)
        folder = tmp_path / "tls"
        if event["event"] == "round_committed" and not seen:
            seen.update(secrets_of(folder))
            assert server_status(folder).committed_round >= 1
            shown.update(shown_by(folder))
        if event["event"] == "round_committed" and event["round"] in KILLED:
            kill_with_log(folder / f"logs/{KILLED[event['round']]}.log", folder)

    server = {"rounds": 40, "evaluate_every": 40}
    plain = run(scenario(groups=GROUPS, server=server), out=tmp_path / "plain")
    launch = {"tls": True, "restarts": 4}
    done = run(
        scenario(groups=GROUPS, server=server, launch=launch),
        out=tmp_path / "tls",
        show=look,
        show_every_s=0.005,
    )
    assert done.summary["model_sha256"] == plain.summary["model_sha256"]
    deaths = [event["process"] for event in events if event["event"] == "died"]
    assert deaths == list(KILLED.values())
    assert seen.keys() == PROGRAMS
    assert all(credentials.tls is not None for credentials in seen.values())
    traces = [trace for credentials in seen.values() for trace in traces_of(credentials)]
    assert len(shown) >= len(GROUPS) + 4
    assert [trace for trace in traces for text in shown.values() if trace in text] == []
    assert_nowhere_in(done, traces)


def assert_nowhere_in(done: Run, traces: list[bytes]) -> None:
    """No file of the run folder has a secret."""
    files = [path for path in done.folder.rglob("*") if path.is_file()]
    assert {"journal.jsonl", "ledger.sqlite", "server.json"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        assert [trace for trace in traces if trace in content] == [], path
    assert not (done.folder / SECRETS).exists()

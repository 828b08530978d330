"""`muster revoke` on a run of processes, whose server is killed afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.chaos.run_processes import kill_process, run_processes
from muster.emulator import run
from muster.emulator.run_folder.control import stop

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]
GROUPS = [{"name": "dev", "count": 4}, {"name": "pack", "count": 2, "devices_per_process": 2}]
LEFT = {"dev-0000", "dev-0002", "dev-0003"}


class Operator:
    """Revokes two processes, kills the server when they have ended, and stops the run when the
    next server has committed a round with the devices that are left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.said: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.killed_at = 0
        self._stopped = False

    def look(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["event"] == "round_committed" and not self.said:
            self.said = [self._revoke("dev-0001"), self._revoke("pack-0001")]
        if event["event"] == "died" and self.deaths() == {"dev-0001", "pack-0000..pack-0001"}:
            self.killed_at = len(self.events)
            for process in run_processes(self._folder):
                if process.part == "server":
                    kill_process(process, self._folder)
        if event["event"] == "round_committed" and self.returned() == LEFT and not self._stopped:
            self._stopped = True
            stop(self._folder)

    def _revoke(self, client: str) -> str:
        command = [*MUSTER, "revoke", str(self._folder), client]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def deaths(self) -> set[str]:
        return {event["process"] for event in self.events if event["event"] == "died"}

    def returned(self) -> set[str]:
        """The devices that have enrolled since the server was killed."""
        after = self.events[self.killed_at :] if self.killed_at else []
        return {event["client"] for event in after if event["event"] == "enrolled"}

    def restarted(self) -> list[str]:
        return [event["process"] for event in self.events if event["event"] == "restarted"]


def test_a_run_goes_on_without_revoked_devices_also_when_its_server_is_killed(
    scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(server={"rounds": 100_000}, groups=GROUPS, launch={"restarts": 1})
    operator = Operator(tmp_path / "run")
    done = run(planned, out=tmp_path / "run", show=operator.look)
    assert done.status == "stopped"
    assert operator.said == [
        "revoked device/dev-0001; the run goes on without it\n",
        "revoked device/pack-0000..pack-0001 with 1 other device; the run goes on without it\n",
    ]
    assert operator.restarted() == ["server"], "revoked devices are not started again"
    assert operator.returned() == LEFT
    contributions = done.ledger.contributions
    last = contributions[contributions["round"] == done.ledger.rounds["round"].max()]
    assert set(last["client"]) == LEFT

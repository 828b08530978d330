"""`muster verify`, with gateways that are processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from muster.cli.commands import main
from muster.emulator.gateway.config import GatewayProcess, Ports
from muster.emulator.launch.processes import Processes
from muster.emulator.verification import verify
from muster.emulator.verification.result import Tolerances

LINKS = """
name = "links"
seed = 3
task = "linear"
[server]
rounds = 3
[[groups]]
name = "rural"
count = 3
link = {up = "1 Mbit/s", down = "2 Mbit/s", rtt = "40 ms"}
shared_link = {up = "1.5 Mbit/s"}
[[groups]]
name = "home"
count = 1
link = {profile = "unshaped"}
[[groups]]
name = "office"
count = 1
"""
WIDE = ("--seconds", "0.5", "--tolerance", "0.4", "--devices", "1")


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario with links; whatever is made for a while is made in an empty folder."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", None)
    path = tmp_path / "links.toml"
    path.write_text(LINKS)
    return path


def nothing_made(scenario: Path) -> bool:
    return list((scenario.parent / "scratch").iterdir()) == []


def muster(*arguments: object) -> list[str]:
    program = "from muster.cli.commands import main; main()"
    return [sys.executable, "-c", program, *map(str, arguments)]


@pytest.mark.soak
def test_links_are_measured_and_told_as_table_and_json(scenario: Path, nothing_left: None) -> None:
    out = scenario.parent / "found.json"
    result = CliRunner().invoke(main, ["verify", str(scenario), *WIDE, "--json", str(out)])
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert found["ok"] is True
    told = [(row["group"], row["link"], row["quantity"]) for row in found["rows"]]
    rural = [row[1:] for row in told if row[0] == "rural"]
    one = rural[0][0]
    assert rural == [
        (one, "rtt"),
        (one, "rate up"),
        (one, "rate down"),
        ("shared", "rate up"),
        ("shared", "fairness up"),
        (one, "grpc rtt"),
        (one, "grpc up"),
        (one, "grpc down"),
    ]
    # A group without links is none of its business.
    assert {row[0] for row in told} == {"rural", "home"}
    assert "are inside their tolerances" in result.stdout
    assert "starting the gateway of rural" in result.stderr
    assert nothing_made(scenario)


@pytest.mark.soak
def test_a_link_that_delivers_less_than_asked_is_status_1(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    truth = Processes.start_gateway

    async def start_slower(self: Processes, config: GatewayProcess) -> Ports:
        slower = [
            each.model_copy(update={"shape": each.shape.model_copy(update={"down_bps": 0.5e6})})
            for each in config.devices
            if config.group == "rural"
        ]
        return await truth(self, config.model_copy(update={"devices": slower or config.devices}))

    monkeypatch.setattr(Processes, "start_gateway", start_slower)
    result = CliRunner().invoke(main, ["verify", str(scenario), *WIDE])
    assert result.exit_code == 1, result.output
    (row,) = [line for line in result.stdout.splitlines() if "  NO" in line]
    assert "rate down" in row
    assert "2 Mbit/s" in row
    assert "1 of 5 are outside their tolerances." in result.stdout


def test_a_gateway_that_dies_ends_the_verification(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    pids: list[int] = []
    truth = Processes.start_gateway

    async def start(self: Processes, config: GatewayProcess) -> Ports:
        ports = await truth(self, config)
        pids.extend(program.pid for program in self.alive.values())
        return ports

    def show(step: str) -> None:
        if step.startswith("rates") and pids:
            os.kill(pids.pop(0), signal.SIGKILL)

    from muster.common.errors import MusterError

    monkeypatch.setattr(Processes, "start_gateway", start)
    with pytest.raises(MusterError):
        verify(scenario, seconds=0.5, devices=1, tolerances=Tolerances(rate=0.4), show=show)
    assert nothing_made(scenario)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(
    scenario: Path, nothing_left: None, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        muster("verify", scenario, "--seconds", 60), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("rates up"):
            break
    process.send_signal(number)
    rest: Any = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert "error: stopped before everything was measured" in rest
    assert nothing_made(scenario)


def test_a_scenario_without_links_is_refused(scenario: Path) -> None:
    scenario.write_text(LINKS[: LINKS.index("[[groups]]")] + '[[groups]]\nname = "a"\ncount = 1\n')
    result = CliRunner().invoke(main, ["verify", str(scenario)])
    assert result.exit_code == 2
    assert "links has no links to verify" in result.stderr
    assert "groups.link.profile" in result.stderr
    assert nothing_made(scenario)

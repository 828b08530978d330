"""The follower of a run folder, and journals that no program of muster wrote."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from muster.common.clock import WallClock
from muster.common.testing import ManualClock
from muster.emulator.live.follower import Follower
from muster.emulator.run_folder.folder import ADDRESS, COMPOSE, JOURNAL, SCENARIO

TOML = """
name = "made-up"
[[groups]]
name = "dev"
count = 2
"""


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        ({"event": "warned"}, 0),
        ({"event": "warned", "at": "noon"}, 0),
        ({"event": ["warned"], "at": 1.0}, 0),
        ({"event": "warned", "at": 1.0, "targets": 3}, 1),
    ],
)
def test_the_follower_outlives_odd_lines(odd: dict[str, Any], shown: int, tmp_path: Path) -> None:
    (tmp_path / SCENARIO).write_text(TOML)
    journal = tmp_path / JOURNAL
    journal.write_text('{"event":"attended","at":1.0,"client":"dev-0000"}\n')
    follower = Follower(tmp_path, WallClock())
    follower.look()
    with journal.open("a") as lines:
        lines.write(f'{json.dumps(odd)}\n{{"event":"attended","at":2.0,"client":"dev-0001"}}\n')
    follower.look()
    assert follower.newest is not None
    assert len(follower.newest.lines) == 2 + shown
    assert json.loads(follower.newest.sections["run"])["present"] == 2


def test_a_fleet_that_docker_keeps_is_interrupted_while_no_server_listens(tmp_path: Path) -> None:
    (tmp_path / SCENARIO).write_text(TOML)
    (tmp_path / COMPOSE).touch()
    (tmp_path / JOURNAL).write_text('{"event":"attended","at":1.0,"client":"dev-0000"}\n')
    clock = ManualClock()
    follower = Follower(tmp_path, clock)

    def state() -> str:
        clock.advance(10.0)
        follower.look()
        assert follower.newest is not None
        return str(json.loads(follower.newest.sections["run"])["state"])

    assert [state(), state()] == ["running"] * 2, "the server has not been started"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        host, port = server.getsockname()
        (tmp_path / ADDRESS).write_text(json.dumps({"host": host, "port": port}))
        assert state() == "interrupted"
        server.listen()
        assert state() == "running"

"""The ray backend over real programs of nodes, but without Ray: the nodes are on this machine, and
lines go through pipes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.common.errors import LaunchFailed
from muster.common.processes import PARENT, child_command
from muster.emulator import Run, run
from muster.emulator.launch.choice import BackendKind
from muster.emulator.launch.ray.fleet import RayFleet
from muster.emulator.launch.ray.node_link import NodeLost
from muster.emulator.launch.ray.placing import Node
from muster.emulator.runs import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.system.conftest import MakeScenario

    from muster.common.clock import Clock
    from muster.emulator.launch.backend import Died
    from muster.emulator.launch.ray.node_program import NodeProcess
    from muster.emulator.launch.ray.placing import Resources
    from muster.emulator.scenario.scenario import Scenario

pytestmark = pytest.mark.usefixtures("nothing_left")

SOON_S = 0.005
"""Seconds between two reads of the journal. With the default, a fast run could be over too soon."""

PHONES = {
    "name": "phones",
    "count": 4,
    "link": {"up": "20 Mbit/s", "down": "20 Mbit/s"},
    "device": {"profile": "phone"},
}
"""Devices that have a gateway, and a state that must survive: a battery."""


class ProgramPipe:
    """A pipe to the program of a node that is a child of this process."""

    def __init__(self, program: asyncio.subprocess.Process) -> None:
        self.program = program
        self._cut = asyncio.Event()

    def send(self, line: str) -> None:
        assert self.program.stdin is not None
        if not self._cut.is_set():
            self.program.stdin.write(line.encode() + b"\n")

    async def receive(self) -> Sequence[str]:
        assert self.program.stdout is not None
        reading = asyncio.create_task(self.program.stdout.readline())
        cut = asyncio.create_task(self._cut.wait())
        await asyncio.wait({reading, cut}, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if self._cut.is_set():
            reading.cancel()
            raise NodeLost("cut")
        return [reading.result().decode() or json.dumps({"ended": await self.program.wait()})]

    def cut(self) -> None:
        """Let nothing through any more. The program lives on and does not know."""
        self._cut.set()

    def end(self) -> None:
        assert self.program.stdin is not None
        if not self._cut.is_set():
            self.program.stdin.close()

    def kill(self) -> None:
        """Nothing: the program cannot be reached, or has ended."""


class LocalNodes:
    """A cluster of two nodes, which are this machine."""

    address = "127.0.0.1"

    def __init__(self) -> None:
        self.pipes: dict[str, ProgramPipe] = {}
        self.names = ["a", "b"]

    def nodes(self) -> Sequence[Node]:
        return [Node(name, "127.0.0.1", {"CPU": 1.0, "memory": 1e12}) for name in self.names]

    def lose(self, name: str) -> None:
        """Kill the program of a node, which is then no part of the cluster any more."""
        self.names.remove(name)
        self.pipes[name].program.kill()

    async def reserve(self, needs: Mapping[str, Resources]) -> None:
        """Nothing."""

    async def open(self, node: Node, config: NodeProcess, shared: str, log: str) -> ProgramPipe:
        with open(log, "ab") as messages:
            program = await asyncio.create_subprocess_exec(
                *child_command("muster.emulator.launch.ray.node_program"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=messages,
                start_new_session=True,
                limit=1 << 24,
                env={**os.environ, PARENT: str(os.getpid())},
            )
        pipe = self.pipes[node.id] = ProgramPipe(program)
        pipe.send(config.to_json())
        return pipe

    def close(self) -> None:
        """Nothing."""


Play = "Callable[..., Run]"


@pytest.fixture
def nodes() -> LocalNodes:
    return LocalNodes()


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, nodes: LocalNodes) -> Callable[..., Run]:
    """Run a scenario on the nodes."""

    def fleet(scenario: Scenario, folder: Path, clock: Clock, died: Died) -> RayFleet:
        return RayFleet(scenario, folder, clock, died, nodes)

    def play(*arguments: Any, **named: Any) -> Run:
        kind = BackendKind(fleet, lambda _: None, lambda _: None, lambda _, data: [])
        with monkeypatch.context() as replaced:
            replaced.setattr(running, "kind_of", lambda name: kind)
            return run(*arguments, **named, backend="ray", report=False)

    return play


def model_of(done: Run) -> str:
    return str(done.summary["model_sha256"])


def once(when: Callable[[dict[str, Any]], bool], act: Callable[[], None]) -> Any:
    """Do something at the first event of a kind."""
    done: list[bool] = []

    def show(event: dict[str, Any]) -> None:
        if not done and when(event):
            done.append(True)
            act()

    return show


def below(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those that these have started."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            yield child
            yield from below(child)


def third_round(event: dict[str, Any]) -> bool:
    return bool(event["event"] == "round_committed" and event["round"] >= 3)


def test_two_nodes_give_the_model_of_one_machine(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    planned = scenario(groups=[{"name": "dev", "count": 4}, PHONES])
    there = play(planned, out=tmp_path / "there")
    assert nodes.pipes.keys() == {"a", "b"}
    assert model_of(there) == model_of(run(planned, out=tmp_path / "here", report=False))


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_devices_of_a_lost_node_return_on_the_other(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path, how: str
) -> None:
    planned = scenario(
        server={"rounds": 30},
        groups=[{"name": "dev", "count": 4}, PHONES],
        launch={"restarts": 10, "cluster": {"lease_s": 5}},
    )

    def lose() -> None:
        pipe = nodes.pipes["a"]
        if how == "killed":
            pipe.program.kill()
        else:
            pipe.cut()
            # A fast run would be over before the lease. So its devices there hang until they die.
            for pid in below(pipe.program.pid):
                os.kill(pid, signal.SIGSTOP)

    there = play(planned, out=tmp_path / "there", show=once(third_round, lose), show_every_s=SOON_S)
    causes = {event["cause"] for event in there.ledger.events("died")}
    assert causes == {"its node was lost"}
    assert model_of(there) == model_of(run(planned, out=tmp_path / "here", report=False))
    if how == "cut off":
        log = (tmp_path / "there/logs/node-1.log").read_text()
        assert "nothing was heard for 5 s: all programs of this node end" in log


def test_without_restarts_a_lost_node_fails_the_run(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    planned = scenario(server={"rounds": 1000}, groups=[{"name": "dev", "count": 4}])
    show = once(third_round, lambda: nodes.pipes["b"].program.kill())
    with pytest.raises(LaunchFailed, match="its node was lost"):
        play(planned, out=tmp_path / "there", show=show, show_every_s=SOON_S)


def test_a_run_whose_nodes_are_too_few_in_the_end_fails_and_says_what_is_missing(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    planned = scenario(
        server={"rounds": 1000},
        groups=[{"name": "dev", "count": 4}],
        launch={"restarts": 10, "cluster": {"resources": {"CPU": 0.5}}},
    )
    show = once(third_round, lambda: nodes.lose("b"))
    with pytest.raises(LaunchFailed, match="2 of 2 programs of the group dev find no room"):
        play(planned, out=tmp_path / "there", show=show, show_every_s=SOON_S)


def test_faults_reach_the_programs_of_nodes(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    planned = scenario(
        server={"rounds": 30},
        groups=[{"name": "dev", "count": 4}, PHONES],
        faults=[
            {"do": do, "target": {"names": [name]}, "when": {"round": begins}, "for_s": 0.5}
            for do, name, begins in (("pause", "dev-0001", 4), ("crash", "phones-0001", 9))
        ],
    )
    there = play(planned, out=tmp_path / "there")
    seen = {fault["fault"]: fault["seen"] for fault in there.summary["faults"]}
    assert seen == {"pause-1": "process stopped", "crash-1": "ended by signal 9"}

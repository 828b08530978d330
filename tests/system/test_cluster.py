"""The ray backend over real programs of nodes, but without Ray: the nodes are on this machine, and
lines go through pipes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.chaos.run_processes import run_processes
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
        self._on_gpu: list[str] = []

    def send(self, line: str) -> None:
        """Send a line. There is no GPU here, so what shall be on one is on the CPU, as torch calls
        it with a number: such packs are spawned too."""
        assert self.program.stdin is not None
        request = json.loads(line)
        if request.get("do") == "start_packs":
            devices = [config["torch_device"] for config in request["configs"]]
            indices = [int(each.partition(":")[2]) for each in devices if each != "cpu"]
            self._on_gpu += [request["gpus"][index] for index in indices]
            line = line.replace('"torch_device": "cuda:', '"torch_device": "cpu:')
        if not self._cut.is_set():
            self.program.stdin.write(line.encode() + b"\n")

    def gpus(self, node: str) -> Sequence[tuple[str, str]]:
        """The GPU of every pack on a GPU that was started here."""
        return [(node, gpu) for gpu in self._on_gpu]

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
    """A cluster of two nodes, which are this machine.

    Attributes:
        gpus: the names of the GPUs that the nodes claim to have.
    """

    address = "127.0.0.1"

    def __init__(self) -> None:
        self.pipes: dict[str, ProgramPipe] = {}
        self.names = ["a", "b"]
        self.gpus: dict[str, list[str]] = {"a": [], "b": []}
        self._reserved = Counter[str]()

    def nodes(self) -> Sequence[Node]:
        return [Node(name, "127.0.0.1", self._has(name)) for name in self.names]

    def _has(self, name: str) -> Resources:
        gpus = {"GPU": float(len(self.gpus[name]))} if self.gpus[name] else {}
        return {"CPU": 1.0, "memory": 1e12, **gpus}

    def on_gpus(self) -> Counter[tuple[str, str]]:
        """How many packs were started on each GPU, by the names of its node and of the GPU."""
        return Counter(gpu for name, pipe in self.pipes.items() for gpu in pipe.gpus(name))

    def lose(self, name: str) -> None:
        """Kill the program of a node, which is then no part of the cluster any more."""
        self.names.remove(name)
        self.pipes[name].program.kill()

    async def reserve(self, needs: Mapping[str, Resources]) -> Mapping[str, Sequence[str]]:
        """Name the GPUs that are needed. A node has them in the order of its list."""
        assert all(needs.values())
        assert needs  # Ray reserves something, or is not asked
        named = {}
        for node, resources in needs.items():
            first = self._reserved[node]
            self._reserved[node] += int(resources.get("GPU", 0))
            named[node] = self.gpus[node][first : self._reserved[node]]
        return named

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


def _is_nursery(pid: int) -> bool:
    return b"muster.client.processes.nursery" in Path(f"/proc/{pid}/cmdline").read_bytes()


def third_round(event: dict[str, Any]) -> bool:
    return bool(event["event"] == "round_committed" and event["round"] >= 3)


def test_two_nodes_give_the_model_of_one_machine(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    planned = scenario(groups=[{"name": "dev", "count": 4}, PHONES])
    there = play(planned, out=tmp_path / "there")
    assert nodes.pipes.keys() == {"a", "b"}
    assert model_of(there) == model_of(run(planned, out=tmp_path / "here", report=False))


@pytest.mark.parametrize(
    "how", [pytest.param("killed", marks=pytest.mark.soak), "without nursery", "cut off"]
)
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
        elif how == "without nursery":
            os.kill(
                next(pid for pid in below(pipe.program.pid) if _is_nursery(pid)), signal.SIGKILL
            )
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


def test_every_process_on_a_gpu_has_one_of_its_node(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    nodes.gpus = {"a": ["4"], "b": ["0", "GPU-uuid"]}
    fast = {"torch_device": "cuda"}
    groups = [{"name": "dev", "count": 3, "device": fast}, {**PHONES, "count": 3}]
    planned = scenario(groups=groups, launch={"devices_per_gpu": 1})
    seen = Counter[str]()

    def look() -> None:
        for process in run_processes(tmp_path / "there"):
            if process.name.startswith("dev-"):
                environment = Path(f"/proc/{process.pid}/environ").read_text().split("\0")
                seen.update(each for each in environment if each.startswith("CUDA_VISIBLE"))

    there = play(planned, out=tmp_path / "there", show=once(third_round, look), show_every_s=SOON_S)
    assert nodes.on_gpus() == Counter([("a", "4"), ("b", "0"), ("b", "GPU-uuid")])
    assert seen == {"CUDA_VISIBLE_DEVICES=4": 1, "CUDA_VISIBLE_DEVICES=0,GPU-uuid": 2}
    groups = [{"name": "dev", "count": 3}, {**PHONES, "count": 3}]
    here = run(scenario(groups=groups), out=tmp_path / "here", report=False)
    assert model_of(there) == model_of(here)


@pytest.mark.soak
def test_devices_on_gpus_of_a_lost_node_return_on_those_of_the_other(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    nodes.gpus = {"a": ["0", "1"], "b": ["0"]}
    group = {"name": "dev", "count": 4, "device": {"torch_device": "cuda"}}
    planned = scenario(
        server={"rounds": 30},
        groups=[group],
        launch={"restarts": 10, "devices_per_gpu": 2},
    )
    show = once(third_round, lambda: nodes.lose("b"))
    there = play(planned, out=tmp_path / "there", show=show, show_every_s=SOON_S)
    started = nodes.on_gpus()
    assert started.pop(("b", "0")) == 1
    assert started == Counter({("a", "0"): 2, ("a", "1"): 2})
    planned = scenario(server={"rounds": 30}, groups=[{"name": "dev", "count": 4}])
    assert model_of(there) == model_of(run(planned, out=tmp_path / "here", report=False))


def test_devices_return_on_the_gpu_of_the_only_node_if_its_program_dies(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    nodes.names, nodes.gpus = ["a"], {"a": ["0"]}
    group = {"name": "dev", "count": 2, "device": {"torch_device": "cuda"}}
    planned = scenario(server={"rounds": 30}, groups=[group], launch={"restarts": 10})
    show = once(third_round, lambda: nodes.pipes["a"].program.kill())
    there = play(planned, out=tmp_path / "there", show=show, show_every_s=SOON_S)
    assert there.ledger.events("died")
    # Its GPU was still reserved, so no other was. These are the packs of the second program.
    assert nodes.on_gpus() == {("a", "0"): 2}


@pytest.mark.soak
def test_a_run_whose_last_gpus_are_lost_fails_and_says_what_is_missing(
    scenario: MakeScenario, play: Callable[..., Run], nodes: LocalNodes, tmp_path: Path
) -> None:
    nodes.gpus = {"a": [], "b": ["0"]}
    planned = scenario(
        server={"rounds": 1000},
        groups=[
            {"name": "dev", "count": 2},
            {"name": "gpu", "count": 2, "device": {"torch_device": "auto"}},
        ],
        launch={"restarts": 10},
    )
    show = once(third_round, lambda: nodes.lose("b"))
    missing = (
        "2 of 2 programs of the group gpu find no room: they need .* no node has any GPU"
        r".* Nodes that were lost are not used: 127\.0\.0\.1"
    )
    with pytest.raises(LaunchFailed, match=missing):
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

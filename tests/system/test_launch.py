"""Starting, stopping and dying: whatever happens to whichever process, nothing is left behind."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.emulator import run
from muster.emulator.scenario.scenario import Scenario

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")

MUSTER = Path(sys.executable).with_name("muster")

DEADLINE_S = 60.0
"""Far beyond what anything here takes; whoever waits longer has found a bug."""

ROUNDS = 10


class Waiting:
    """What is left of the time that a test grants, for select and poll."""

    def __init__(self) -> None:
        self._limit = time.monotonic() + DEADLINE_S

    def for_file(self, file: int, what: str) -> None:
        """Return when `file` can be read: it has data, is at its end, or is a dead process."""
        left = max(0.0, self._limit - time.monotonic())
        poll = select.poll()  # Unlike select() it takes descriptors above 1,023.
        poll.register(file, select.POLLIN)
        assert poll.poll(left * 1000), f"waited {DEADLINE_S:g} s for {what}"


class Command:
    """A `muster` in a session of its own; its plain-line progress is what a test waits for."""

    def __init__(self, arguments: list[str | Path], folder: Path) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self._output = folder / f"output-{len(list(folder.glob('output-*')))}"
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [MUSTER, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                env={**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": path},
                start_new_session=True,
            )
        assert self.process.stderr is not None
        self._pipe = self.process.stderr
        self.errors = ""

    def says(self, text: str) -> None:
        """Return when `text` stands in what it wrote to standard error."""
        waiting = Waiting()
        while text not in self.errors:
            assert self._read(waiting, repr(text)), f"ended without {text!r}:\n{self.errors}"

    def ends(self) -> int:
        """Return its exit status when it has ended."""
        waiting = Waiting()
        while self._read(waiting, "its end"):
            pass
        return self.process.wait(DEADLINE_S)

    @property
    def output(self) -> str:
        """What it wrote to standard output."""
        return self._output.read_text()

    def interrupt(self, number: int) -> None:
        """A signal to its process group, as a terminal sends Ctrl-C."""
        os.killpg(self.process.pid, number)

    def hang_up(self) -> None:
        """Close the other end of its standard error, as `muster run … 2>&1 | head` does."""
        self._pipe.close()

    def close(self) -> None:
        """Kill it, if a failed test left it, and wait until it and its processes are gone."""
        if self.process.poll() is None:
            with Deaths(family(self.process.pid)) as deaths:
                self.process.kill()
                self.process.wait(DEADLINE_S)
                deaths.wait()
        self._pipe.close()

    def _read(self, waiting: Waiting, what: str) -> bool:
        waiting.for_file(self._pipe.fileno(), f"{what}, having read:\n{self.errors}")
        read = os.read(self._pipe.fileno(), 1 << 16).decode()
        self.errors += read
        return bool(read)


class Deaths:
    """Handles on processes, taken while they live; they die as zombies too."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._handles = {name: os.pidfd_open(pid) for name, pid in pids.items()}

    def __enter__(self) -> Deaths:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles.values():
            os.close(handle)

    def wait(self) -> None:
        waiting = Waiting()
        for name, handle in self._handles.items():
            waiting.for_file(handle, f"the death of {name}")


def family(supervisor: int) -> dict[str, int]:
    """Process ids of everything below a supervisor, named by the log that each writes to."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = (int(fields[1]), os.readlink(folder / "fd/2"))
            except OSError:
                continue
    found: dict[str, int] = {}
    above = {supervisor}
    while above:
        above = {pid for pid, (parent, _) in parents.items() if parent in above}
        found |= {Path(parents[pid][1]).stem: pid for pid in above}
    return found


def parent(pid: int) -> int:
    """The process id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The run folder of the test's run."""
    return tmp_path / "run"


@pytest.fixture
def muster(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts a `muster` command; none outlives the test."""
    started: list[Command] = []

    def start(*arguments: str | Path) -> Command:
        started.append(Command([*arguments], tmp_path))
        return started[-1]

    yield start
    for command in started:
        command.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the model that the run of these tests ends with."""
    tmp_path = tmp_path_factory.mktemp("undisturbed")
    path = write_scenario(tmp_path, **PLANNED)
    return str(run(path, out=tmp_path / "run").summary["model_sha256"])


# Rounds of some tenths of a second: long enough to be hit in the middle, and few enough that
# each has a line of progress.
PLANNED: dict[str, Any] = {
    "name": "launched",
    "task": {"name": "linear", "dimension": 5, "heterogeneity": 1.0},
    "training": {"learning_rate": 0.05, "local_steps": 500, "batch_size": 8},
    "server": {"rounds": ROUNDS},
    "groups": [{"name": "dev", "count": 3}],
}

PROCESSES = {"server", "nursery", "evaluation", "dev-0000", "dev-0001", "dev-0002"}


def write_scenario(tmp_path: Path, **sections: Any) -> Path:
    path = tmp_path / "scenario.toml"
    path.write_text(Scenario.model_validate(sections).to_toml())
    return path


@pytest.fixture
def start(muster: Callable[..., Command], tmp_path: Path, folder: Path) -> Callable[[], Command]:
    """Starts the run of these tests."""
    return lambda: muster("run", write_scenario(tmp_path, **PLANNED), "--out", folder)


@pytest.fixture
def lasting(muster: Callable[..., Command], tmp_path: Path, folder: Path) -> Command:
    """A run that has committed its first round, and that goes on until the test ends it."""
    scenario = {**PLANNED, "server": {"rounds": 10_000}}
    command = muster("run", write_scenario(tmp_path, **scenario), "--out", folder)
    command.says(" of 10000, loss")
    return command


@pytest.fixture
def going(start: Callable[[], Command]) -> Command:
    """A run that has committed its first round and has most of them before it."""
    command = start()
    command.says(f"round 1 of {ROUNDS}")
    return command


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def assert_nothing_temporary(command: Command, folder: Path) -> None:
    assert list(command.temporary.iterdir()) == []
    assert list(folder.rglob("*.tmp")) == []


def assert_port_free(folder: Path) -> None:
    port = json.loads((folder / "address.json").read_text())["port"]
    with socket.socket() as listener:
        # Connections of the past that only time out do not count; a listener does.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))


def assert_resumes_to(sha256: str, folder: Path, muster: Callable[..., Command]) -> None:
    command = muster("run", "--resume", folder)
    assert command.ends() == 0, command.errors
    assert summary(folder)["status"] == "completed"
    assert summary(folder)["rounds"] == ROUNDS
    assert summary(folder)["model_sha256"] == sha256
    assert_nothing_temporary(command, folder)


def test_the_server_and_the_devices_wait_for_their_turn_on_a_core(going: Command) -> None:
    pids = family(going.process.pid)
    for name in PROCESSES - {"nursery", "evaluation"}:
        assert os.sched_getscheduler(pids[name]) == os.SCHED_BATCH, name


# --- stopping ------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_run_stops_it_and_leaves_nothing(
    going: Command, folder: Path, number: int
) -> None:
    with Deaths(family(going.process.pid)) as deaths:
        going.interrupt(number)
        assert going.ends() == 1
        deaths.wait()
    assert summary(folder)["status"] == "stopped"
    assert 0 < summary(folder)["rounds"] < ROUNDS
    assert f"muster run --resume {folder}" in going.errors
    assert_port_free(folder)
    assert_nothing_temporary(going, folder)


def test_a_run_that_was_stopped_goes_on_to_the_same_model(
    going: Command, folder: Path, muster: Callable[..., Command], undisturbed: str
) -> None:
    going.interrupt(signal.SIGINT)
    assert going.ends() == 1
    assert_resumes_to(undisturbed, folder, muster)


def test_ctrl_c_while_devices_start_stops_the_run(
    start: Callable[[], Command], folder: Path
) -> None:
    command = start()
    command.says("devices enrolled")
    with Deaths(family(command.process.pid)) as deaths:
        command.interrupt(signal.SIGINT)
        assert command.ends() == 1
        deaths.wait()
    assert summary(folder)["status"] == "stopped"
    assert_port_free(folder)
    assert_nothing_temporary(command, folder)


PLUG_IN = """
import os, signal
from muster.common.errors import ConfigError
from muster.server.aggregators.fedavg import FedAvg
from muster.tasks.regression import LinearRegression

def press_ctrl_c_and_hang():
    os.killpg(int(os.environ["MUSTER_PARENT"]), signal.SIGINT)
    while True:
        signal.pause()

class Hangs(LinearRegression):
    def open(self, population, seed):
        press_ctrl_c_and_hang()

class HangsInTheServer(FedAvg):
    def initial_state(self, model):  # before the server listens
        press_ctrl_c_and_hang()

class Refuses(LinearRegression):
    def open(self, population, seed):
        raise ConfigError("task.dimension: these data have 7")

class Breaks(LinearRegression):
    def open(self, population, seed):
        raise RuntimeError("a mistake in the plug-in")
"""


@pytest.fixture
def start_with(
    muster: Callable[..., Command], tmp_path: Path, folder: Path
) -> Callable[..., Command]:
    """Starts a run with a class out of PLUG_IN, by default as its task."""

    def start(name: str, setting: str = "task.name") -> Command:
        (tmp_path / "plug_in.py").write_text(PLUG_IN)
        path = write_scenario(tmp_path, **PLANNED)
        return muster("run", path, "--out", folder, "--set", f"{setting}=plug_in:{name}")

    return start


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("setting", "name"),
    [("task.name", "Hangs"), ("server.aggregator", "HangsInTheServer")],
    ids=["nursery", "server"],
)
def test_ctrl_c_while_a_program_starts_is_obeyed_at_once(
    start_with: Callable[..., Command], folder: Path, setting: str, name: str
) -> None:
    command = start_with(name, setting)  # and presses Ctrl-C
    assert command.ends() == 1
    assert "stopped before the run began" in command.errors
    assert "Traceback" not in command.errors
    assert_nothing_temporary(command, folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Refuses", "task.dimension: these data have 7"),
        ("Breaks", "RuntimeError: a mistake in the plug-in"),
    ],
)
def test_a_task_that_cannot_be_opened_ends_the_start_with_its_message(
    start_with: Callable[..., Command], folder: Path, name: str, message: str
) -> None:
    command = start_with(name)
    assert command.ends() == 2
    assert message in command.errors
    assert "\nerror: " in f"\n{command.errors}"
    assert "Traceback" not in command.errors.partition("error: ")[0]
    assert "never retrieved" not in command.errors
    assert_nothing_temporary(command, folder)


@pytest.mark.timeout(DEADLINE_S)
def test_a_display_that_fails_ends_the_run_with_its_error(
    scenario: MakeScenario, folder: Path
) -> None:
    class Broken(Exception):
        pass

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed":
            raise Broken

    with pytest.raises(Broken):
        run(scenario(), out=folder, show=show)


def test_a_run_whose_reader_goes_away_ends(going: Command) -> None:
    with Deaths(family(going.process.pid)) as deaths:
        going.hang_up()
        assert going.process.wait(DEADLINE_S) == 1
        deaths.wait()


# --- dying ---------------------------------------------------------------------------------------


def test_a_killed_supervisor_takes_everything_with_it_and_the_run_resumes(
    going: Command, folder: Path, muster: Callable[..., Command], undisturbed: str
) -> None:
    processes = family(going.process.pid)
    assert processes.keys() == PROCESSES
    with Deaths(processes) as deaths:
        going.process.kill()
        assert going.ends() == -signal.SIGKILL
        deaths.wait()
    assert_port_free(folder)
    assert list(going.temporary.iterdir()) == []
    assert_resumes_to(undisturbed, folder, muster)


@pytest.mark.parametrize("victim", ["dev-0001", "server", "nursery"])
def test_a_killed_process_ends_the_run_by_name_and_the_run_resumes(
    going: Command, folder: Path, muster: Callable[..., Command], undisturbed: str, victim: str
) -> None:
    processes = family(going.process.pid)
    with Deaths(processes) as deaths:
        os.kill(processes[victim], signal.SIGKILL)
        assert going.ends() == 1
        deaths.wait()
    assert f"error: {victim} ended unexpectedly by signal 9" in going.errors
    assert f"{folder}/logs/{victim}.log" in going.errors
    assert f"muster run --resume {folder}" in going.errors
    assert "Traceback" not in going.errors
    assert summary(folder)["status"] == "failed"
    assert_port_free(folder)
    assert list(going.temporary.iterdir()) == []
    assert_resumes_to(undisturbed, folder, muster)


def test_a_killed_evaluation_ends_the_run_and_the_run_resumes(
    going: Command, folder: Path, muster: Callable[..., Command], undisturbed: str
) -> None:
    processes = family(going.process.pid)
    assert parent(processes["evaluation"]) == processes["nursery"], "else it imports torch again"
    with Deaths(processes) as deaths:
        os.kill(processes["evaluation"], signal.SIGKILL)
        assert going.ends() == 1
        deaths.wait()
    assert "the evaluation process ended with status -9" in going.errors
    assert f"{folder}/logs/evaluation.log" in going.errors
    assert f"muster run --resume {folder}" in going.errors
    assert summary(folder)["status"] == "failed"
    assert_resumes_to(undisturbed, folder, muster)


# --- a run that is going on, and one that is over ------------------------------------------------


def test_a_run_that_is_going_on_cannot_be_resumed_beside_itself(
    lasting: Command, folder: Path, muster: Callable[..., Command]
) -> None:
    second = muster("run", "--resume", folder)
    assert second.ends() == 2
    assert f"another muster process is running in {folder}" in second.errors
    assert lasting.process.poll() is None


def test_status_tells_how_a_run_stands(
    lasting: Command, folder: Path, muster: Callable[..., Command]
) -> None:
    status = muster("status", folder)
    assert status.ends() == 0, status.errors
    assert "of 10000, version" in status.output
    assert "devices: 3 of 3 present" in status.output


def test_watch_gives_json_lines_until_the_run_is_stopped_from_outside(
    lasting: Command, folder: Path, muster: Callable[..., Command]
) -> None:
    watch = muster("watch", "--json", folder)
    stop = muster("stop", folder)
    assert stop.ends() == 0, stop.errors
    assert watch.ends() == 0, watch.errors
    assert lasting.ends() == 1
    assert summary(folder)["status"] == "stopped"
    events = [json.loads(line) for line in watch.output.splitlines()]
    assert [event["status"] for event in events if event["event"] == "ended"] == ["stopped"]


def test_of_a_run_that_is_over_one_is_told_that_it_is_over(
    going: Command, folder: Path, muster: Callable[..., Command]
) -> None:
    going.interrupt(signal.SIGTERM)
    going.ends()
    for command in ("status", "watch"):
        asked = muster(command, folder)
        assert asked.ends() == 0
        assert "stopped: asked by a signal" in asked.output
    asked = muster("stop", folder)
    assert asked.ends() == 1
    assert asked.errors.startswith("error: no server of this run answers")
    assert f"Its files: {folder}" in asked.errors


async def test_a_run_works_inside_a_running_event_loop(
    scenario: MakeScenario, folder: Path
) -> None:
    done = run(scenario(server={"rounds": 2}), out=folder)
    assert done.status == "completed"


def test_a_run_works_in_a_process_with_many_open_files(
    scenario: MakeScenario, folder: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"this machine allows a process {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    # select() refuses descriptors above 1,023, which the sockets of this run will have.
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        assert run(scenario(server={"rounds": 2}), out=folder).status == "completed"
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

"""`muster up` and `muster down`, as a person would type them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.emulator.launch.docker.services import project_of

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("images")]

MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]

FLEET = """
name = "up"
seed = 3
[task]
name = "linear"
dimension = 5
[server]
rounds = 1_000_000
evaluate_every = 1_000_000
stall_s = 300.0
[[groups]]
name = "dev"
count = {count}
"""

SLOTS = """
shared_link = {slots = 1, overflow = "subset"}
"""

LINK = """
link = {profile = "unshaped"}
"""

CONNECT = """
import errno, socket, sys
for address in sys.argv[1:]:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        print(address, "reached")
    except OSError as error:
        print(address, errno.errorcode.get(error.errno, "unknown"))
"""

Docker = Callable[..., "subprocess.CompletedProcess[str]"]
Muster = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[..., Path]:
    """A scenario of a run that only ends when it is asked to."""

    def write(count: int = 2, more: str = "") -> Path:
        path = tmp_path / "scenario.toml"
        path.write_text(FLEET.format(count=count) + more)
        return path

    return write


@pytest.fixture
def folder(tmp_path: Path, docker: Docker) -> Iterator[Path]:
    """A run folder to be; the test fails if Docker has something of it in the end."""
    folder = tmp_path / "run"
    yield folder
    left = names_left(docker, folder)
    if left:
        subprocess.run([*MUSTER, "down", str(folder)], check=False)
    assert not left


@pytest.fixture
def muster(tmp_path: Path) -> Muster:
    def call(*arguments: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*MUSTER, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=tmp_path,
        )

    return call


def works(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_left(docker: Docker, folder: Path) -> list[str]:
    labels = f"muster.folder={folder}", f"com.docker.compose.project={project_of(folder)}"
    asked = [["ps", "--all", "--format", "{{.Names}}"], ["network", "ls", "--format", "{{.Name}}"]]
    asked += [["volume", "ls", "--format", "{{.Name}}"]]
    return [
        name
        for question in asked
        for label in labels
        for name in works(docker(*question, "--filter", f"label={label}")).split()
    ]


def processes_of(folder: Path) -> list[str]:
    """The commands of this machine's processes that name the run folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [command] if str(folder) in command else []
    return found


def container(docker: Docker, folder: Path, name: str) -> dict[str, Any]:
    labels = ["--filter", f"label=muster.folder={folder}", "--filter", f"label=muster.name={name}"]
    found = works(docker("ps", "--all", "--quiet", *labels)).split()
    told: list[dict[str, Any]] = json.loads(works(docker("inspect", *found)))
    return told[0]


def address_of(told: dict[str, Any], network: str) -> str:
    networks = told["NetworkSettings"]["Networks"]
    (found,) = (net for name, net in networks.items() if name.endswith(f"_{network}"))
    return str(found["IPAddress"])


def committed(muster: Muster, folder: Path) -> int:
    (line,) = (each for each in works(muster("status", folder)).splitlines() if "committed" in each)
    return int(line.split()[2])


def until(true: Callable[[], bool]) -> None:
    while not true():  # the test's own limit ends it
        time.sleep(0.1)


def test_ten_devices_come_up_are_followed_stopped_and_taken_down(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path
) -> None:
    said = works(muster("up", scenario(10), "--out", folder))
    assert "10 devices are up, 13 containers in all; round " in said
    assert f"muster down {folder.name}" in said
    reached = committed(muster, folder)
    assert reached >= 1
    until(lambda: committed(muster, folder) > reached)
    works(muster("stop", folder))
    until(lambda: (folder / "summary.json").exists())  # which the supervisor writes
    done = works(muster("down", folder))
    assert "stopped: the operator asked for it" in done
    assert names_left(docker, folder) == []
    assert processes_of(folder) == []
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "stopped"
    assert summary["rounds"] >= reached
    assert (folder / "report.html").exists()
    assert {"server", "gateway-dev", "dev-0009", "evaluation", "compose"} <= {
        log.stem for log in (folder / "logs").iterdir()
    }
    owners = {path.stat().st_uid for path in (folder, *folder.rglob("*"))}
    assert owners == {os.geteuid()}
    again = muster("down", folder)
    assert works(again) == done


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["gateway-dev", "dev-0001"])
def test_what_is_killed_comes_back_and_the_run_goes_on(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path, name: str
) -> None:
    """By whatever it is killed: the kernel, or a person with `docker kill`."""

    def restarted(times: int) -> bool:
        lines = (folder / "journal.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines if '"restarted"' in line]
        return len([event for event in events if event["process"] == name]) == times

    def further(before: int) -> bool:
        return committed(muster, folder) > before + 1

    works(muster("up", scenario(more=SLOTS), "--out", folder))
    for deaths in (1, 2):
        if deaths == 1:
            os.kill(container(docker, folder, name)["State"]["Pid"], signal.SIGKILL)
        else:
            works(docker("kill", container(docker, folder, name)["Id"]))
        until(partial(restarted, deaths))
        until(partial(further, committed(muster, folder)))
    assert name not in works(muster("status", folder))
    works(muster("down", folder))


def test_faults_are_injected_seen_and_healed_in_a_fleet_of_up(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path
) -> None:
    works(muster("up", scenario(more=LINK), "--out", folder))
    said = works(muster("inject", folder, "partition", "--target", "dev-0001", "--for-s", 200))
    assert said == "partition-1: partition on dev-0001, for 200 s\n"
    reached = committed(muster, folder)
    until(lambda: "round" in waiting(muster, folder, "dev-0001"))
    told = works(muster("status", folder))
    assert "faults that act: partition-1 on dev-0001" in told
    assert "waits for dev-0001" in told
    assert committed(muster, folder) <= reached + 1
    assert works(muster("heal", folder)) == "healed: partition-1\n"
    until(lambda: committed(muster, folder) > reached + 2)
    said = works(muster("pause", folder, "dev-0000", "--for-s", 200))
    assert container(docker, folder, "dev-0000")["State"]["Status"] == "paused"
    assert works(muster("unpause", folder)) == "healed: pause-1\n"
    reached = committed(muster, folder)
    until(lambda: committed(muster, folder) > reached)
    limit = ["cpu-limit", "share=0.02", "--target", "dev-0000", "--for-s", 200]
    works(muster("inject", folder, *limit))
    assert container(docker, folder, "dev-0000")["HostConfig"]["CpuQuota"] == 2000
    works(muster("heal", folder))
    done = works(muster("down", folder))
    assert "faults         3 of 3 observed" in done
    assert processes_of(folder) == []


def waiting(muster: Muster, folder: Path, client: str) -> str:
    """The line of the status that says for whom the round waits; empty if it does not wait."""
    lines = works(muster("status", folder)).splitlines()
    return "".join(line for line in lines if f"waits for {client}" in line)


def test_a_fleet_without_restarts_fails_as_that_of_a_run_does(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path
) -> None:
    works(muster("up", scenario(), "--out", folder, "--set", "launch.restarts=0"))
    works(docker("kill", container(docker, folder, "dev-0001")["Id"]))
    until(lambda: not processes_of(folder))
    said = (folder / "logs/supervisor.log").read_text()
    assert "dev-0001 ended unexpectedly by signal 9" in said
    assert f"muster up --resume {folder}" in said
    assert names_left(docker, folder) == []
    assert json.loads((folder / "summary.json").read_text())["status"] == "failed"


@pytest.mark.soak
def test_a_fleet_whose_supervisor_was_killed_says_so_and_goes_on_with_another(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path
) -> None:
    works(muster("up", scenario(), "--out", folder))
    (supervisor,) = (
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"muster.cli.detached" in path.read_bytes() and str(folder).encode() in path.read_bytes()
    )
    os.kill(supervisor, signal.SIGKILL)
    gateway = container(docker, folder, "gateway-dev")
    works(docker("kill", gateway["Id"]))
    said = works(muster("status", folder))
    assert f"gateway-dev ended with status 137: `docker logs {gateway['Name'][1:]}`" in said
    assert f"muster up --resume {folder.name}" in said
    refused = muster("inject", folder, "crash")
    assert f"`muster up --resume {folder.name}`" in refused.stderr
    reached = committed(muster, folder)
    works(muster("up", "--resume", folder))
    until(lambda: committed(muster, folder) > reached)
    assert "up --resume" not in works(muster("status", folder))
    works(muster("down", folder))


def test_a_device_has_no_way_but_its_gateway(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path
) -> None:
    works(muster("up", scenario(1, '[[groups]]\nname = "other"\ncount = 1\n'), "--out", folder))
    device = container(docker, folder, "dev-0000")
    server = address_of(container(docker, folder, "server"), "backbone")
    other = container(docker, folder, "gateway-other")
    mine = address_of(container(docker, folder, "gateway-dev"), "backbone")
    reachable = "gateway-dev:7001"
    ways = [
        reachable,
        f"{server}:7100",
        "server:7100",
        "127.0.0.1:7100",
        f"{mine}:7000",
        f"{address_of(other, 'backbone')}:7000",
        f"{address_of(other, 'group-other')}:7001",
        "1.1.1.1:53",
    ]
    told = works(docker("exec", device["Id"], "python", "-c", CONNECT, *ways))
    assert [line.split()[0] for line in told.splitlines()] == ways
    assert [way for way in told.splitlines() if "reached" in way] == [f"{reachable} reached"]
    works(muster("down", folder))


@pytest.mark.soak
def test_a_fleet_goes_on_from_its_file_as_somebody_has_edited_it(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path
) -> None:
    works(muster("up", scenario(), "--out", folder))
    works(muster("down", folder))
    before = json.loads((folder / "summary.json").read_text())["rounds"]
    file = folder / "docker-compose.yml"
    told = yaml.safe_load(file.read_text())
    told["services"]["dev-0000"]["mem_limit"] = "777m"
    told["services"]["mine"] = {
        "image": told["services"]["server"]["image"],
        "command": ["sleep", "1000"],
        "init": True,
        "volumes": ["kept:/var/lib/muster"],
    }
    told["volumes"] = {"kept": {}}
    file.write_text(yaml.safe_dump(told))
    assert (
        "--resume continues the run as it began"
        in muster("up", "--resume", folder, "--data", ".").stderr
    )
    works(muster("up", "--resume", folder))
    assert container(docker, folder, "dev-0000")["HostConfig"]["Memory"] == 777 << 20
    assert len(names_left(docker, folder)) > 5
    assert "another muster process is running" in muster("up", "--resume", folder).stderr
    works(muster("down", folder))
    assert json.loads((folder / "summary.json").read_text())["rounds"] > before


def test_a_ctrl_c_while_it_comes_up_leaves_nothing(
    docker: Docker, scenario: Callable[..., Path], folder: Path, tmp_path: Path
) -> None:
    command = [*MUSTER, "up", str(scenario(4)), "--out", str(folder)]
    coming = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    until(lambda: bool(names_left(docker, folder)))
    coming.send_signal(signal.SIGINT)
    _, said = coming.communicate(timeout=100)
    assert coming.returncode == 1
    assert "stopped; nothing is left running" in said
    assert "Traceback" not in said
    assert names_left(docker, folder) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("gone", [False, True], ids=["its folder is there", "its folder is gone"])
def test_what_a_killed_up_left_is_taken_down(
    muster: Muster, docker: Docker, scenario: Callable[..., Path], folder: Path, gone: bool
) -> None:
    command = [*MUSTER, "up", str(scenario(6)), "--out", str(folder)]
    coming = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until(lambda: len(names_left(docker, folder)) > 4)
    coming.kill()
    coming.wait()
    if gone:
        folder.rename(folder.with_name("elsewhere"))
        works(muster("down", "--all"))
    else:
        (folder / "docker-compose.yml").unlink()
        works(muster("down", folder))
    assert names_left(docker, folder) == []


def test_what_dies_at_the_start_is_told_with_its_log_and_nothing_is_left(
    muster: Muster,
    docker: Docker,
    scenario: Callable[..., Path],
    folder: Path,
    images: dict[str, str],
) -> None:
    wrong = f"launch.client_image={images['server']}"  # it has no torch
    failed = muster("up", scenario(), "--out", folder, "--set", wrong)
    assert failed.returncode == 1
    # Of the evaluation or of a device, whichever ends the run.
    assert "No module named 'torch'" in failed.stderr
    assert names_left(docker, folder) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["launch.client_image=none:1"], "there is no image none:1"),
        (["task.data.directory=/nowhere"], "/nowhere does not exist"),
    ],
    ids=["image", "data"],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    muster: Muster,
    scenario: Callable[..., Path],
    folder: Path,
    settings: list[str],
    said: str,
) -> None:
    given = [word for setting in settings for word in ("--set", setting)]
    refused = muster("up", scenario(), "--out", folder, *given)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not folder.exists()


def test_an_image_with_other_code_is_refused_before_anything_starts(
    muster: Muster,
    scenario: Callable[..., Path],
    folder: Path,
    docker: Docker,
    images: dict[str, str],
) -> None:
    image = "muster-client:of-another-day"
    text = f"FROM {images['client']}\nLABEL muster.code=other\n"
    build = ["docker", "build", "--quiet", "--tag", image, "-"]
    subprocess.run(build, input=text, text=True, capture_output=True, check=True)
    try:
        refused = muster("up", scenario(), "--out", folder, "--set", f"launch.client_image={image}")
    finally:
        works(docker("image", "rm", image))
    assert refused.returncode == 2
    assert f"the image {image} has other code of muster than this command" in refused.stderr
    assert "`make images`" in refused.stderr
    assert not folder.exists()


def test_a_daemon_that_is_not_there_is_told(
    muster: Muster, scenario: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    refused = muster("up", scenario(), "--out", folder)
    assert refused.returncode == 2
    assert "no Docker daemon answers" in refused.stderr
    assert not folder.exists()

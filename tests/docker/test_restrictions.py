"""What the containers of a fleet may do, as Docker and the kernel report it."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.emulator import run
from muster.emulator.detached.down import down
from muster.emulator.detached.up import up
from muster.emulator.launch.docker.container_limits import LOG_OPTIONS
from muster.emulator.launch.docker.daemon import connected, containers_of, name_of
from muster.emulator.launch.docker.services import UNPRIVILEGED, Site
from muster.emulator.launch.holds import HeldContainer
from muster.emulator.run_folder.control import revoke, stop
from muster.emulator.run_folder.limits import Limited
from muster.emulator.scenario.scenario import Scenario
from muster.server.rpc.revocations import REVOKED

pytestmark = [pytest.mark.timeout(400), pytest.mark.usefixtures("images")]

VALUES: dict[str, Any] = {
    "name": "restricted",
    "task": {"name": "linear", "dimension": 5},
    "server": {"rounds": 1_000_000, "evaluate_every": 1_000_000, "stall_s": 300.0},
    "groups": [
        {"name": "dev", "count": 2, "shared_link": {"slots": 1, "overflow": "subset"}},
        {"name": "far", "count": 2, "devices_per_container": 2},
    ],
}

SCENARIO = validate(Scenario, VALUES, "test")
"""A run that only ends when it is asked to."""

NAMES = {
    *("server", "evaluation", "gateway-dev", "gateway-far"),
    *("dev-0000", "dev-0001", "far-0000..far-0001"),
}

EVERYWHERE = {"/tmp", "/dev/shm", "/dev/mqueue"}
WRITTEN: Mapping[str, set[str]] = {
    "server": {"/run/muster"},
    "gateway-dev": {"/words"},
    "dev-0000": {"/state/dev-0000"},
    "dev-0001": {"/state/dev-0001"},
    "far-0000..far-0001": {"/state/far-0000", "/state/far-0001"},
}
"""The folders in which a container may write, besides those in its memory."""

LOOK = """
import json, os, stat

def is_written(folder):
    path = os.path.join(folder, ".probe")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except OSError:
        return False
    os.unlink(path)
    return True

folders, files, privileged, secrets = [], [], [], {}
for folder, below, names in os.walk("/"):
    if folder == "/":
        below[:] = [each for each in below if each not in ("proc", "sys")]
    if is_written(folder):
        folders.append(folder)
        below[:] = []
    for name in names:
        path = os.path.join(folder, name)
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            continue
        if os.access(path, os.W_OK) and folder not in folders:
            files.append(path)
        if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
            privileged.append(path)
        if folder.startswith("/credentials/"):
            secrets[path] = [found.st_uid, stat.S_IMODE(found.st_mode)]
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
options = next(line.split()[3] for line in open("/proc/mounts") if line.split()[1] == "/tmp")
print(json.dumps({
    "folders": folders, "files": files, "privileged": privileged, "secrets": secrets,
    "tmp": options.split(","), **status,
}))
"""
"""Prints what a process may do in its container. It tries to make a file in every folder."""

TAMPER = """
import errno, os
for name in ("scenario.toml", "docker-compose.yml", ".env", "setup/server.json", "setup/new",
             "devices/new", "logs/new"):
    for how in (lambda: open(name, "a"), lambda: os.replace(".probe", name)):
        open(".probe", "w").close()
        try:
            how()
            print(name, "was written")
        except OSError as error:
            assert error.errno in (errno.EROFS, errno.EBUSY, errno.EXDEV), (name, error)
os.unlink(".probe")
print(sorted(os.listdir("setup")), os.listdir("devices"), os.listdir("logs"))
"""


def silent(_: str) -> None:
    pass


def inside(container: Any, *command: str, user: str = "") -> tuple[int, str]:
    """Run a command in a container; return its exit status and what it printed."""
    status, output = container.exec_run(list(command), user=user)
    return status, output.decode()


def assert_restricted(container: Any, user: tuple[int, int]) -> None:
    name, (uid, gid) = name_of(container), user
    assert uid != 0
    held, config = container.attrs["HostConfig"], container.attrs["Config"]
    assert config["User"] == f"{uid}:{gid}"
    assert held["ReadonlyRootfs"]
    assert not held["Privileged"]
    assert held["CapDrop"] == ["ALL"]
    assert not held["CapAdd"]
    assert held["SecurityOpt"] == ["no-new-privileges:true"]
    assert held["Memory"] > 0
    assert held["MemorySwap"] in (held["Memory"], -1)  # -1: the kernel does not count swap
    assert held["PidsLimit"] > 0
    assert held["CpuQuota"] or held["NanoCpus"]
    assert (held["PidMode"], held["UTSMode"], held["IpcMode"]) == ("", "", "private")
    assert held["LogConfig"] == {"Type": "json-file", "Config": dict(LOG_OPTIONS)}
    for mount in container.attrs["Mounts"]:
        assert mount["RW"] == (mount["Destination"] in WRITTEN.get(name, ())), mount
    published = [port for ports in (held["PortBindings"] or {}).values() for port in ports]
    assert {port["HostIp"] for port in published} <= {"127.0.0.1"}

    status, output = inside(container, "python", "-c", LOOK)
    assert status == 0, output
    found = json.loads(output)
    assert found["Uid"].split() == [str(uid)] * 4
    assert found["Gid"].split() == [str(gid)] * 4
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found[capabilities], 16) == 0
    assert found["NoNewPrivs"] == "1"
    assert found["Seccomp"] == "2"  # system calls are filtered
    assert set(found["folders"]) == EVERYWHERE | WRITTEN.get(name, set())
    assert (found["files"], found["privileged"]) == ([], [])
    assert {"noexec", "nosuid", "nodev"} <= set(found["tmp"])
    assert found["secrets"]
    for path, (owner, mode) in found["secrets"].items():
        assert (owner, mode) == (uid, 0o400)
        status, output = inside(container, "cat", path, user="4242:4242")
        assert (status, "Permission denied" in output) == (1, True)


def assert_all_restricted(folder: Path, planned: Scenario) -> None:
    with connected() as client:
        containers = containers_of(client, folder)
        assert {name_of(container) for container in containers} == NAMES
        for container in containers:
            assert_restricted(container, Site(planned, folder).user)


@contextmanager
def fleet(planned: Scenario, folder: Path) -> Iterator[None]:
    """A fleet of `muster up`."""
    up(planned, out=folder, say=silent)
    try:
        yield
    finally:
        down(folder, silent)


def server_of(client: Any, folder: Path) -> Any:
    (found,) = (each for each in containers_of(client, folder) if name_of(each) == "server")
    return found


def test_the_containers_of_a_compose_file_are_restricted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with fleet(SCENARIO, folder):
        assert_all_restricted(folder, SCENARIO)


def test_the_containers_of_the_backend_are_restricted(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def show(event: dict[str, Any]) -> None:
        if event["event"] == "round_committed" and event["round"] == 3:
            assert_all_restricted(folder, SCENARIO)
            stop(folder)

    done = run(SCENARIO, out=folder, backend="docker", show=show, report=False)
    assert done.status == "stopped"


def test_a_server_keeps_who_was_revoked_and_changes_nothing_that_decides_how_its_fleet_starts(
    tmp_path: Path,
) -> None:
    """Nor does it see what belongs to others: the supervisor's socket, states of devices, logs. A
    link that it leaves does not make `muster down` write elsewhere."""
    folder, precious = tmp_path / "run", tmp_path / "precious"
    precious.write_text("unchanged")
    precious.chmod(0o666)
    with fleet(SCENARIO, folder), connected() as client:
        assert list(revoke(folder, "dev-0001").clients) == ["dev-0001"]
        assert json.loads((folder / REVOKED).read_text())[0][0] == "device/dev-0001"
        server = server_of(client, folder)
        status, output = inside(server, "sh", "-c", 'cd /run/muster && python -c "$0"', TAMPER)
        assert (status, output) == (0, "['initial.safetensors', 'server.json'] [] []\n")
        for name in ("summary.json", "summary.json.tmp", "report.html", "figures/loss.png"):
            inside(server, "ln", "-s", str(precious), f"/run/muster/{name}")
    assert precious.read_text() == "unchanged"
    assert json.loads((folder / "summary.json").read_text())["status"] == "stopped"
    assert not [path for path in folder.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize(("what", "value"), [("cpu", 0.05), ("memory", 32 << 20)])
def test_a_container_whose_limit_is_lifted_has_the_one_with_which_it_started(
    docker: Callable[..., Any], images: Mapping[str, str], what: Limited, value: float
) -> None:
    limits = ("--memory", "64m", "--memory-swap", "64m", "--cpu-period", "100000")
    started = docker("run", "--detach", "--rm", "--init", "--network", "none", *limits,
                     "--cpu-quota", "150000", images["server"], "sleep", "300")  # fmt: skip
    identity = started.stdout.strip()

    def held() -> dict[str, Any]:
        (found,) = json.loads(docker("inspect", identity).stdout)
        keys = ("CpuPeriod", "CpuQuota", "Memory", "MemorySwap")
        return {key: found["HostConfig"][key] for key in keys}

    try:
        before, container = held(), HeldContainer(identity)
        container.limit(what, value)
        assert held() != before
        container.free(what)
        assert held() == before
        container.release()
    finally:
        docker("rm", "--force", identity)


def test_the_images_name_a_user_without_privileges(
    docker: Callable[..., Any], images: Mapping[str, str]
) -> None:
    for image in images.values():
        (found,) = json.loads(docker("image", "inspect", image).stdout)
        assert found["Config"]["User"] == f"{UNPRIVILEGED}:{UNPRIVILEGED}"

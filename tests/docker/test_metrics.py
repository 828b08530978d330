"""Prometheus in a container beside a fleet of `muster up`, from the profile of the compose file.
No registry is needed: its image is made from the program of this machine."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from muster.emulator.launch.docker.compose_command import compose_command
from muster.emulator.launch.docker.daemon import connected, containers_of, free_port, name_of
from muster.emulator.launch.docker.monitoring import PROMETHEUS_IMAGE, PROMETHEUS_PORT

pytestmark = pytest.mark.timeout(400)

MUSTER = [sys.executable, "-c", "from muster.cli.commands import main; main()"]
IMAGE = "muster-test-prometheus"

FLEET = """
name = "watched"
seed = 3
[task]
name = "linear"
dimension = 5
[server]
rounds = 1_000_000
evaluate_every = 1_000_000
stall_s = 300.0
metrics_port = {port}
[[groups]]
name = "dev"
count = 2
"""

Docker = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def prometheus(
    images: dict[str, str], docker: Docker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An image of Prometheus."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Prometheus: apt install prometheus")
    context = tmp_path_factory.mktemp("image")
    shutil.copy(program, context / "prometheus")
    (context / "Dockerfile").write_text(
        f'FROM {images["server"]}\nCOPY prometheus /bin/\nENTRYPOINT ["/bin/prometheus"]\n'
    )
    built = docker("build", "--quiet", "--tag", IMAGE, str(context))
    assert built.returncode == 0, built.stderr
    yield IMAGE
    docker("image", "rm", IMAGE)


def muster(*arguments: object) -> None:
    done = subprocess.run(
        [*MUSTER, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def asked(port: int, query: str) -> list[dict[str, Any]]:
    """The result of a query to Prometheus; empty while it does not answer."""
    where = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with suppress(OSError), urllib.request.urlopen(where, timeout=10) as reply:
        found: list[dict[str, Any]] = json.load(reply)["data"]["result"]
        return found
    return []


@pytest.fixture(scope="module")
def fleet(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The run folder of a fleet, and the port of its metrics. In the end nothing of the fleet is
    left in Docker, and no secret in the folder."""
    place, port = tmp_path_factory.mktemp("fleet"), free_port()
    folder = place / "run"
    (place / "scenario.toml").write_text(FLEET.format(port=port))
    muster("up", place / "scenario.toml", "--out", folder)
    yield folder, port
    muster("down", folder)
    with connected() as client:
        assert not containers_of(client, folder)
    assert not (folder / "setup/secrets").exists()


def test_prometheus_reads_the_metrics_of_a_fleet_in_containers(
    prometheus: str, fleet: tuple[Path, int]
) -> None:
    folder, _ = fleet
    with connected() as client:
        assert "prometheus" not in map(name_of, containers_of(client, folder))
    compose, port = folder / "docker-compose.yml", free_port()
    published = f"127.0.0.1:{{}}:{PROMETHEUS_PORT}"
    text = compose.read_text()
    assert PROMETHEUS_IMAGE in text
    compose.write_text(
        text.replace(PROMETHEUS_IMAGE, prometheus).replace(
            published.format(PROMETHEUS_PORT), published.format(port)
        )
    )
    command = [*compose_command(), "--file", str(compose), "--profile", "metrics"]
    started = subprocess.run(
        [*command, "up", "--detach", "prometheus"], capture_output=True, text=True, check=False
    )
    assert started.returncode == 0, started.stderr
    while not (found := asked(port, "muster_round > 2")):  # the test's own limit ends it
        time.sleep(0.2)
    assert found[0]["metric"]["instance"] == "server:7300"
    assert found[0]["metric"]["scenario"] == "watched"
    (up,) = asked(port, 'up{job="muster"}')
    assert up["value"][1] == "1"
    (present,) = asked(port, "muster_devices_present")
    assert present["metric"]["group"] == "dev"
    assert present["value"][1] == "2"
    with connected() as client:
        containers = {name_of(each): each.attrs for each in containers_of(client, folder)}
    container = containers["prometheus"]
    assert container["Config"]["User"] == containers["server"]["Config"]["User"]
    assert container["HostConfig"]["ReadonlyRootfs"] is True
    assert container["HostConfig"]["CapDrop"] == ["ALL"]
    assert not any(mount["RW"] for mount in container["Mounts"])


def test_the_metrics_are_published_on_the_loopback_with_tls_only(
    fleet: tuple[Path, int], tmp_path: Path
) -> None:
    folder, port = fleet
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        with suppress(ConnectionError):
            assert b"HTTP" not in plain.recv(100)
    other = free_port()
    reading = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder}/setup/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{other}",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not asked(other, "muster_round > 2"):
            time.sleep(0.2)
    finally:
        reading.terminate()
        reading.wait()

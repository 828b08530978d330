"""A fleet's compose file, on made-up containers and on a scenario; no Docker."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.common.config import validate
from muster.emulator.blueprint import Blueprint
from muster.emulator.launch import containers
from muster.emulator.launch.compose import (
    FOLDER_LABEL,
    NAME_LABEL,
    Project,
    compose_text,
    environment_text,
)
from muster.emulator.launch.services import Limits, Mount, Service, Site
from muster.emulator.scenario import Scenario
from muster.emulator.up import fleet

ROOT = Path(__file__).parents[2]
FOLDER = Path("/home/you/runs/rural")
NETWORKS = {"backbone": False, "group-a": True}

SERVER = Service(
    name="server",
    role="server",
    image="of-server:1",
    command=["python", "-m", "muster.server", "/run/muster"],
    networks=["backbone"],
    limits=Limits(cpus=16.0, memory_bytes=8 << 30, processes=512),
    mounts=[Mount(str(FOLDER), "/run/muster", writable=True)],
    environment={"COLOUR": "$blue"},
    ports={7100: 40001},
    health=["python", "-c", "pass"],
)


def device(name: str, **changes: Any) -> Service:
    given: dict[str, Any] = {
        "name": name,
        "role": "device",
        "image": "of-clients:1",
        "command": ["sh", "-c", "exec python -m muster.client.spawned < /config.json"],
        "networks": ["group-a"],
        "limits": Limits(cpus=1.0, memory_bytes=1 << 30, processes=128),
        "mounts": [Mount(f"{FOLDER}/setup/{name}.json", "/config.json"), Mount("/my: data", "/d")],
        "environment": {"COLOUR": "$blue"},
        "after": ["gateway-a"],
    }
    return Service(**{**given, **changes})


def project(restarts: int = 0) -> Project:
    return Project("muster-1", "rural", FOLDER, "runs/rural", (1000, 100), 4, NETWORKS, restarts)


def text_of(*services: Service, restarts: int = 0) -> str:
    return compose_text(project(restarts), services)


def told(*services: Service, restarts: int = 0) -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = yaml.safe_load(text_of(*services, restarts=restarts))
    return parsed


@pytest.mark.parametrize("service", [SERVER, device("a-1")], ids=["server", "device"])
def test_a_container_may_do_little_and_has_limits(service: Service) -> None:
    found = told(service)["services"][service.name]
    assert found["user"] == "1000:100"
    assert found["read_only"] is True
    assert found["tmpfs"] == ["/tmp:mode=1777"]
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert found["init"] is True
    assert found["cpus"] == min(service.limits.cpus, 4)
    assert found["mem_limit"] == f"{service.limits.memory_bytes >> 20}m"
    assert found["pids_limit"] == service.limits.processes
    assert found["labels"] == {FOLDER_LABEL: str(FOLDER), NAME_LABEL: service.name}


def test_ports_are_this_machines_alone() -> None:
    services = told(SERVER, device("a-1"))["services"]
    assert services["server"]["ports"] == ["127.0.0.1:40001:7100"]
    assert "ports" not in services["a-1"]


def test_what_is_not_written_to_is_mounted_read_only_and_the_folders_paths_are_relative() -> None:
    services = told(SERVER, device("a-1"))["services"]
    assert services["server"]["volumes"] == [
        {"type": "bind", "source": ".", "target": "/run/muster"}
    ]
    config, data = services["a-1"]["volumes"]
    assert config["source"] == "./setup/a-1.json"
    assert data == {"type": "bind", "source": "/my: data", "target": "/d", "read_only": True}


def test_a_group_has_a_network_without_a_way_out() -> None:
    networks = told(SERVER)["networks"]
    assert networks["group-a"]["internal"] is True
    assert "internal" not in networks["backbone"]
    assert all(net["labels"] == {FOLDER_LABEL: str(FOLDER)} for net in networks.values())


def test_devices_wait_for_their_gateway_and_come_back() -> None:
    found = told(device("a-1", after=["gateway-a..b"]))["services"]["a-1"]
    assert found["depends_on"] == {"gateway-a-to-b": {"condition": "service_healthy"}}
    assert found["restart"] == "on-failure"


def test_the_server_comes_back_as_often_as_the_scenario_says() -> None:
    assert "restart" not in told(SERVER)["services"]["server"]
    assert told(SERVER, restarts=3)["services"]["server"]["restart"] == "on-failure:3"


def test_health_is_looked_at() -> None:
    assert told(SERVER)["services"]["server"]["healthcheck"]["test"] == [
        "CMD", "python", "-c", "pass",
    ]  # fmt: skip


def test_gpus_are_reserved_where_they_are_asked_for() -> None:
    services = told(device("a-1", gpus=True), device("a-2"))["services"]
    (reserved,) = services["a-1"]["deploy"]["resources"]["reservations"]["devices"]
    assert reserved == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert "deploy" not in services["a-2"]


def test_a_dollar_stays_a_dollar() -> None:
    assert told(SERVER)["services"]["server"]["environment"] == {"COLOUR": "$$blue"}


def test_names_of_packs_are_names_for_docker() -> None:
    services = told(device("a-1..a-9"))["services"]
    assert services["a-1-to-a-9"]["labels"][NAME_LABEL] == "a-1..a-9"


def test_a_hundred_devices_stay_readable() -> None:
    one, hundred = (text_of(SERVER, *(device(f"a-{i}") for i in range(n))) for n in (1, 101))
    assert (len(hundred.splitlines()) - len(one.splitlines())) / 100 <= 7
    assert hundred.count("of-clients:1") == 1
    assert hundred.count("cap_drop") == 1


def test_a_device_that_differs_says_so_and_nothing_else() -> None:
    smaller = device("a-2", limits=Limits(cpus=1.0, memory_bytes=2 << 30, processes=128))
    text = text_of(device("a-1"), smaller)
    assert text.count("mem_limit") == 2
    assert text.count("pids_limit") == 1
    assert yaml.safe_load(text)["services"]["a-2"]["mem_limit"] == "2048m"


def test_the_head_says_what_to_do() -> None:
    head = text_of(SERVER).partition("\nx-")[0]
    assert "muster down runs/rural" in head
    assert "muster up --resume runs/rural" in head
    assert "docker compose --file runs/rural/docker-compose.yml" in head


def test_the_projects_name_is_beside_it() -> None:
    assert environment_text(project()) == "COMPOSE_PROJECT_NAME=muster-1\n"


def test_labels_are_those_of_the_docker_backend() -> None:
    assert (FOLDER_LABEL, NAME_LABEL) == (containers.LABEL, containers._NAME)


def test_everything_of_a_fleet_is_settled_beforehand(tmp_path: Path) -> None:
    groups = [
        {"name": "a", "count": 3, "devices_per_container": 2, "link": {"profile": "wifi"}},
        {"name": "b", "count": 1, "shared_link": {"slots": 1}},
    ]
    values = {"name": "x", "task": {"name": "linear"}, "server": {"rounds": 1}, "groups": groups}
    scenario = validate(Scenario, values, "test")
    for part in ("setup", "devices"):
        (tmp_path / part).mkdir()
    ports = iter(range(40001, 50000))
    site, prepared = Site(scenario, tmp_path), {"examples": [1] * 4, "schema": []}
    services = fleet(Blueprint(scenario, tmp_path), site, prepared, lambda: next(ports))
    assert [service.name for service in services] == [
        "server", "evaluation", "gateway-a", "gateway-b", "a-0000..a-0001", "a-0002", "b-0000",
    ]  # fmt: skip
    published = [port for service in services for port in service.ports.values()]
    assert published == [40001, 40002, 40003]
    gateway = (tmp_path / "setup/gateway-a.config.json").read_text()
    assert '"upstream":"server:7100"' in gateway
    first = (tmp_path / "setup/a-0000..a-0001.config.json").read_text()
    assert '"address":"gateway-a:7001"' in first
    assert '"address":"gateway-a:7002"' in first
    slots = (tmp_path / "setup/b-0000.config.json").read_text()
    assert '"slots":{"address":"gateway-b:7000"' in slots
    assert {path.name for path in (tmp_path / "devices").iterdir()} == {
        "a-0000",
        "a-0001",
        "a-0002",
        "b-0000",
    }


def test_the_example_is_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "deploy/example.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

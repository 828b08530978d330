"""A fleet's compose file, on made-up containers and on a scenario; no Docker."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.common.config import validate
from muster.emulator.launch.docker.compose import Project, compose_text
from muster.emulator.launch.docker.compose_project import fleet
from muster.emulator.launch.docker.container import container_settings
from muster.emulator.launch.docker.container_limits import LOG_OPTIONS, Limits
from muster.emulator.launch.docker.services import (
    FOLDER_LABEL,
    NAME_LABEL,
    Mount,
    Role,
    Service,
    Site,
)
from muster.emulator.launch.docker.stack import Swarm, empty_mounts, make_empty
from muster.emulator.launch.process_configs import ProcessConfigs
from muster.emulator.run_folder.folder import SWARM
from muster.emulator.scenario.scenario import Scenario

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
        "command": ["sh", "-c", "exec python -m muster.client.processes.spawned < /config.json"],
        "networks": ["group-a"],
        "limits": Limits(cpus=1.0, memory_bytes=1 << 30, processes=128),
        "mounts": [Mount(f"{FOLDER}/setup/{name}.json", "/config.json"), Mount("/my: data", "/d")],
        "environment": {"COLOUR": "$blue"},
        "after": ["gateway-a"],
    }
    return Service(**{**given, **changes})


def project(restarts: int = 0) -> Project:
    return Project("muster-1", "rural", FOLDER, "runs/rural", (1000, 100), 4, NETWORKS, restarts)


def told(*services: Service) -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = yaml.safe_load(compose_text(project(), services))
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
    assert found["logging"] == {"driver": "json-file", "options": dict(LOG_OPTIONS)}
    assert found["cpu_quota"] == min(service.limits.cpus, 4) * found["cpu_period"]
    assert found["container_name"] == f"muster-1-{service.name}"
    assert found["mem_limit"] == f"{service.limits.memory_bytes >> 20}m"
    assert found["memswap_limit"] == found["mem_limit"]
    assert found["pids_limit"] == service.limits.processes
    assert found["labels"] == {FOLDER_LABEL: str(FOLDER), NAME_LABEL: service.name}


def test_a_stack_places_limits_and_restarts_its_services_and_publishes_only_the_server() -> None:
    swarm = Swarm(node="n0", labels={"group-a": {"zone": "b"}})
    gateway = device("gateway-a", role="gateway", networks=["backbone", "group-a"], ports={7000: 1})
    hiding = replace(SERVER, hidden=["/run/muster/setup"])
    stack = replace(project(restarts=3), swarm=swarm)
    text = compose_text(stack, [hiding, gateway, device("a-1"), device("a-2")])
    assert "docker stack ps muster-1" in text
    parsed = yaml.safe_load(text)
    assert parsed["version"] == "3.9"
    assert parsed[SWARM] == {"node": "n0"}
    assert {name: net.get("internal") for name, net in parsed["networks"].items()} == {
        "backbone": None,
        "group-a": True,
    }
    assert {net["driver"] for net in parsed["networks"].values()} == {"overlay"}
    found = parsed["services"]
    only_compose = {
        "container_name",
        "cpu_quota",
        "cpu_period",
        "mem_limit",
        "pids_limit",
        "restart",
        "depends_on",
        "tmpfs",
        "profiles",
    }
    for service in found.values():
        assert not only_compose & service.keys()
        assert service["deploy"]["endpoint_mode"] == "dnsrr"
    limits = {"cpus": "4.0", "memory": "8192m", "pids": 512}
    assert found["server"]["deploy"]["resources"] == {"limits": limits}
    assert found["server"]["deploy"]["placement"] == {"constraints": ["node.id == n0"]}
    assert found["server"]["deploy"]["restart_policy"]["max_attempts"] == 3
    assert found["server"]["ports"] == [{"target": 7100, "published": 40001, "mode": "host"}]
    mounts = {each["target"]: each for each in found["server"]["volumes"]}
    assert mounts["/run/muster/setup"]["source"] == "./setup/empty"
    assert mounts["/tmp"]["type"] == "tmpfs"
    for name in ("gateway-a", "a-1", "a-2"):
        assert found[name]["deploy"]["placement"] == {"constraints": ["node.labels.zone == b"]}
        assert found[name]["deploy"]["restart_policy"]["condition"] == "on-failure"
        assert "ports" not in found[name]


def test_what_hides_folders_in_a_stack_has_the_places_of_further_mounts(tmp_path: Path) -> None:
    (tmp_path / "setup").mkdir()
    settings = Mount(str(tmp_path / "server.json"), "/run/muster/setup/server.json")
    folder = Mount(str(tmp_path), "/run/muster/setup/words")
    other = Mount(str(tmp_path), "/run/muster")
    service = replace(SERVER, mounts=[other, settings, folder], hidden=["/run/muster/setup"])
    make_empty(tmp_path, [service])
    (mount,) = empty_mounts(tmp_path, service)
    assert mount == Mount(str(tmp_path / "setup/empty"), "/run/muster/setup")
    assert (Path(mount.source) / "server.json").is_file()
    assert (Path(mount.source) / "words").is_dir()
    assert len(list(Path(mount.source).iterdir())) == 2


def test_docker_restarts_only_what_the_supervisor_does_not() -> None:
    """Both would start a program that died, and the supervisor counts `launch.restarts`."""
    roles: tuple[Role, ...] = ("evaluation", "gateway", "device", "monitoring")
    parts = [SERVER, *(replace(device(role), role=role) for role in roles)]
    found = told(*parts)["services"]
    assert [name for name in found if "restart" in found[name]] == ["monitoring"]


def fleet_of(
    folder: Path, groups: list[dict[str, Any]], **values: Any
) -> tuple[Site, list[Service]]:
    """The containers of a scenario with these groups, whose settings are written to `folder`."""
    for part in ("setup", "devices"):
        (folder / part).mkdir(parents=True)
    needed = {"name": "x", "task": {"name": "linear"}, "server": {"rounds": 1}}
    scenario = validate(Scenario, {**needed, "groups": groups, **values}, "test")
    ports = iter(range(40001, 50000))
    site, prepared = Site(scenario, folder), {"examples": [1] * scenario.devices, "schema": []}
    return site, fleet(ProcessConfigs(scenario, folder), site, prepared, lambda: next(ports))


ONE_OF_EACH = [{"name": "a", "count": 1, "shared_link": {"slots": 1}}]
"""The group of a fleet that has one container of each kind; its gateway keeps words."""


def test_everything_of_a_fleet_is_settled_beforehand(tmp_path: Path) -> None:
    groups = [
        {"name": "a", "count": 3, "devices_per_container": 2, "link": {"profile": "wifi"}},
        {"name": "b", "count": 1, "shared_link": {"slots": 1}},
    ]
    _, services = fleet_of(tmp_path, groups)
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


def test_a_folder_of_code_shows_no_container_the_secrets_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run folder and the user's own authority are often beside the code of a scenario."""
    folder = tmp_path / "mine/runs/x"
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    authority = {"authority": str(tmp_path / "mine/authority")}
    _, services = fleet_of(folder, [{"name": "a", "count": 1}], launch=authority)
    hidden = {service.role: set(service.hidden) for service in services}
    inside_code = {"/own/0/runs/x", "/own/0/authority"}
    assert hidden == {
        "server": {*(f"/run/muster/{part}" for part in ("setup", "devices", "logs")), *inside_code},
        "evaluation": inside_code,
        "gateway": set(),
        "device": inside_code,
    }
    for service in services:
        mounted = [mount.source for mount in service.mounts]
        assert len([each for each in mounted if "/setup/secrets/" in each]) == 1


def test_containers_write_their_own_folders_and_nothing_else(tmp_path: Path) -> None:
    _, services = fleet_of(tmp_path, ONE_OF_EACH)
    written = {
        service.name: [mount.target for mount in service.mounts if mount.writable]
        for service in services
    }
    assert written == {
        "server": ["/run/muster"],
        "evaluation": [],
        "gateway-a": ["/words"],
        "a-0000": ["/state/a-0000"],
    }


def test_groups_that_share_a_link_have_one_gateway_which_reads_every_recording(
    tmp_path: Path,
) -> None:
    recorded = {}
    for name in ("drive.csv", "cell.csv", "north.csv"):
        recorded[name] = str(tmp_path / name)
        (tmp_path / name).write_text("seconds,down Mbit/s\n0,8\n1,2\n2,4\n")
    (tmp_path / "devices.csv").write_text("trace,cell\ndrive.csv,north\n")
    (tmp_path / "life.csv").write_text("device,start,end\na,0,50\n")
    cells = {"north": {"trace": recorded["north.csv"]}}
    link = {"name": "region", "trace": recorded["cell.csv"], "cells": cells}
    groups = [
        {
            "name": "a",
            "count": 1,
            "shared_link": link,
            "table": {"path": str(tmp_path / "devices.csv"), "rows": "drawn"},
            "availability": {"kind": "trace", "file": str(tmp_path / "life.csv")},
        },
        {"name": "b", "count": 1, "shared_link": {"name": "region"}},
    ]
    _, services = fleet_of(tmp_path / "run", groups)
    of_name = {service.name: service for service in services}
    assert [*of_name] == ["server", "evaluation", "gateway-region", "a-0000", "b-0000"]
    gateway = of_name["gateway-region"]
    for device in ("a-0000", "b-0000"):
        assert of_name[device].networks == ["group-region"]
        assert [*of_name[device].after] == ["gateway-region"]
    assert "group-region" in gateway.networks
    files = {mount.source for mount in gateway.mounts} & set(recorded.values())
    assert files == set(recorded.values())
    for reader in ("server", "a-0000"):  # modelled durations follow them
        mounted = {mount.source for mount in of_name[reader].mounts}
        assert mounted >= {*recorded.values(), str(tmp_path / "life.csv")}


def test_the_server_reads_what_decides_how_the_fleet_starts_and_does_not_write_it(
    tmp_path: Path,
) -> None:
    site, (server, *_) = fleet_of(tmp_path, ONE_OF_EACH)
    starting = ("scenario.toml", "docker-compose.yml", ".env")
    for name in (*starting, "setup/server.json", "setup/initial.safetensors"):
        assert Mount(str(tmp_path / name), f"/run/muster/{name}") in server.mounts
    uid, gid = site.user
    hidden = {f"/run/muster/{part}": f"ro,uid={uid},gid={gid}" for part in ("setup", "devices")}
    assert server.in_memory(site.user).items() >= hidden.items()


def test_a_compose_file_restricts_containers_as_the_backend_does(tmp_path: Path) -> None:
    site, services = fleet_of(tmp_path, ONE_OF_EACH)
    made = Project("muster-1", "x", tmp_path, "x", site.user, os.cpu_count() or 1, site.networks())
    composed = yaml.safe_load(compose_text(made, services))["services"]
    for service in services:
        started, written = container_settings(site, service), composed[service.name]
        for key in ("user", "read_only", "cap_drop", "security_opt", "init", "pids_limit"):
            assert started[key] == written[key], key
        for key in ("mem_limit", "memswap_limit"):
            assert f"{started[key] >> 20}m" == written[key]
        assert [f"{place}:{how}" for place, how in started["tmpfs"].items()] == written["tmpfs"]
        for key in ("cpu_quota", "cpu_period"):
            assert started[key] == written[key]
        assert dict(started["log_config"]) == {
            "Type": written["logging"]["driver"],
            "Config": written["logging"]["options"],
        }
        assert [(m["Target"], m["ReadOnly"]) for m in started["mounts"]] == [
            (volume["target"], volume.get("read_only", False)) for volume in written["volumes"]
        ]


@pytest.mark.slow
def test_the_example_is_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "deploy/example.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_data_of_ones_own_are_mounted_where_they_are_read(tmp_path: Path) -> None:
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for file in files:
        file.write_text("x,y\n1,0\n")
    source = {"kind": "csv", "path": str(files[0]), "test_path": str(files[1]), "label": "y"}
    task = {"name": "own", "source": source}
    _, services = fleet_of(tmp_path / "run", [{"name": "a", "count": 1}], task=task)
    expected = {Mount(str(file), str(file)) for file in files}
    reading = {each.name for each in services if expected <= set(each.mounts)}
    assert reading == {"evaluation", "a-0000"}

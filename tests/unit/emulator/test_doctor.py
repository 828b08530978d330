import socket
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.runs import doctor
from muster.emulator.scenario.scenario import Scenario


def scenario(device: str, count: int = 4, **launch: Any) -> Scenario:
    group = {"name": "g", "count": count, "device": {"torch_device": device}}
    values = {"name": "t", "task": "digits", "server": {"rounds": 1}, "groups": [group]}
    return validate(Scenario, {**values, "launch": launch}, "test")


def test_packs_need_descriptors_in_their_own_process() -> None:
    groups = [
        {"name": "a", "count": 7, "devices_per_process": 3},
        {"name": "b", "count": 2, "devices_per_process": 50},
    ]
    values = {"name": "t", "task": "digits", "server": {"rounds": 1}, "groups": groups}
    fleet = doctor.FleetSize.of(validate(Scenario, values, "test"))
    assert (fleet.devices, fleet.processes, fleet.largest_pack) == (9, 4, 3)


def test_a_gpu_that_is_not_there_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "gpus", lambda: 0)
    with pytest.raises(ConfigError, match="no GPU"):
        doctor.require(scenario("cuda"))
    doctor.require(scenario("auto"))
    doctor.require(scenario("cpu"))


def test_more_processes_than_the_gpus_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gpus", lambda: 1)
    doctor.require(scenario("auto", count=4, devices_per_gpu=4))
    with pytest.raises(ConfigError, match="5 processes need a GPU, but there are 1 GPUs for 4"):
        doctor.require(scenario("cuda", count=5, devices_per_gpu=4))


def test_a_port_is_free_or_not_at_the_address_where_the_server_listens() -> None:
    groups = [{"name": "g", "count": 1}]
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        server = {"rounds": 1, "port": taken.getsockname()[1]}
        values = {"name": "t", "task": "digits", "server": server, "groups": groups}
        read = validate(Scenario, values, "test")
        with pytest.raises(ConfigError, match=r"on 127\.0\.0\.2 cannot be used"):
            doctor.require_ports(read, "127.0.0.2")
        doctor.require_ports(read)

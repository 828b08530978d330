import socket
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.launch import doctor
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario


def scenario(
    device: str, count: int = 4, enrollment: dict[str, Any] | None = None, **launch: Any
) -> Scenario:
    group = {"name": "g", "count": count, "device": {"torch_device": device}}
    group["enrollment"] = enrollment or {"kind": "all"}
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


def test_devices_that_are_not_enrolled_need_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gpus", lambda: 1)
    half = {"kind": "bernoulli", "probability": 0.5}
    made = scenario("cuda", count=20, enrollment=half)
    enrolled = sum(resident.enrolled for resident in population(made))
    assert 1 < enrolled < 20
    doctor.require(scenario("cuda", count=20, enrollment=half, devices_per_gpu=enrolled))
    with pytest.raises(ConfigError, match=f"{enrolled} processes need a GPU"):
        doctor.require(scenario("cuda", count=20, enrollment=half, devices_per_gpu=enrolled - 1))


def test_cuda_may_show_fewer_gpus_than_the_driver_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert doctor.gpus(tmp_path) == 3
    for shown, number in (("", 0), ("-1", 0), ("2", 1), ("0,2", 2), ("1,-1,2", 1), ("0,1,2,3", 3)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        assert doctor.gpus(tmp_path) == number


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

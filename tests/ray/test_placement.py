"""Devices and the server are on the nodes with their labels, and on GPUs that nodes declare."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.ray.conftest import at_round, model_of

from muster.chaos.run_processes import run_processes
from muster.common.errors import ConfigError
from muster.emulator import run
from muster.emulator.launch.doctor import describe

if TYPE_CHECKING:
    from tests.system.conftest import MakeScenario

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_group_is_on_the_nodes_with_its_labels(
    cluster: Any, scenario: MakeScenario, tmp_path: Path
) -> None:
    planned = scenario(launch={"cluster": {"labels": {"dev": {"place": "moon"}}}})
    with pytest.raises(ConfigError, match="there is no node with the labels place=moon"):
        run(planned, out=tmp_path / "ray", backend="ray")


def test_the_server_is_refused_on_a_node_without_its_labels(
    cluster: Any, scenario: MakeScenario, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=1, labels={"place": "away"})
    cluster.wait_for_nodes()

    def labelled(place: str) -> Any:
        return scenario(launch={"cluster": {"server_labels": {"place": place}}})

    for place, why in (("away", "It does not have them, but"), ("moon", "No node has them")):
        with pytest.raises(ConfigError, match=rf"labels place={place}\. {why}"):
            run(labelled(place), out=tmp_path / "ray", backend="ray")
    assert not (tmp_path / "ray").exists()
    done = run(labelled("head"), out=tmp_path / "ray", backend="ray", report=False)
    assert done.status == "completed"


ON_GPU = {"torch_device": "cuda"}


class OnCpu:
    """The pipe to a node, where packs that shall be on a GPU are on the CPU, as torch calls it with
    a number, because there is no GPU here.

    Attributes:
        on_gpu: the GPUs of the packs that were started, by their names on the node.
    """

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self.on_gpu: list[str] = []

    def send(self, line: str) -> None:
        request = json.loads(line)
        if request.get("do") == "start_packs":
            devices = [config["torch_device"] for config in request["configs"]]
            self.on_gpu += [request["gpus"][int(each[-1])] for each in devices if each != "cpu"]
        self._pipe.send(line.replace('"torch_device": "cuda:', '"torch_device": "cpu:'))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


def test_devices_on_gpus_are_on_the_nodes_that_declare_them_and_move_to_others(
    cluster: Any, scenario: MakeScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster.emulator.launch.ray.cluster import RayCluster

    first = cluster.add_node(num_cpus=1, num_gpus=2)
    cluster.wait_for_nodes()
    pipes: list[OnCpu] = []
    opened = RayCluster.open

    async def open(self: RayCluster, *arguments: Any) -> OnCpu:
        pipes.append(OnCpu(await opened(self, *arguments)))
        return pipes[-1]

    monkeypatch.setattr(RayCluster, "open", open)
    planned = scenario(
        server={"rounds": 40},
        groups=[{"name": "dev", "count": 2}, {"name": "gpu", "count": 3, "device": ON_GPU}],
        launch={"restarts": 5, "devices_per_gpu": 2},
    )

    def lose() -> None:
        for process in run_processes(tmp_path / "ray"):  # so that the run waits for the loss
            if process.name.startswith("gpu-"):
                os.kill(process.pid, signal.SIGSTOP)
        cluster.add_node(num_cpus=1, num_gpus=4)
        cluster.remove_node(first, allow_graceful=False)

    run(planned, out=tmp_path / "ray", backend="ray", report=False, show=at_round(3, lose))
    plain = scenario(
        server={"rounds": 40},
        groups=[{"name": "dev", "count": 2}, {"name": "gpu", "count": 3}],
    )
    run(plain, out=tmp_path / "here", report=False)
    assert model_of(tmp_path / "ray") == model_of(tmp_path / "here")
    before, after = (pipe.on_gpu for pipe in pipes if pipe.on_gpu)
    assert sorted(before) in (["0", "0", "1"], ["0", "1", "1"])
    assert len(after) == 3
    assert max(Counter(after).values()) == 2


async def test_gpus_that_are_reserved_one_after_the_other_are_others(cluster: Any) -> None:
    from muster.emulator.launch.ray.cluster import RayCluster

    cluster.add_node(num_cpus=1, num_gpus=3, labels={"place": "gpus"})
    cluster.wait_for_nodes()
    made = RayCluster()
    (node,) = (node for node in made.nodes() if node.labels["place"] == "gpus")
    one = await made.reserve({node.id: {"CPU": 0.1, "GPU": 1}})
    two = await made.reserve({node.id: {"GPU": 2}})
    assert sorted([*one[node.id], *two[node.id]]) == ["0", "1", "2"]
    made.close()


def test_too_few_gpus_are_refused_and_named(
    cluster: Any, scenario: MakeScenario, tmp_path: Path
) -> None:
    group = {"name": "gpu", "count": 3, "device": ON_GPU}
    planned = scenario(groups=[group], launch={"devices_per_gpu": 1})
    with pytest.raises(ConfigError, match=r"they need .* 3 GPU; no node has any GPU"):
        run(planned, out=tmp_path / "ray", backend="ray")
    cluster.add_node(num_cpus=1, num_gpus=2)
    cluster.wait_for_nodes()
    with pytest.raises(ConfigError, match="1 of 3 programs of the group gpu find no room"):
        run(planned, out=tmp_path / "ray", backend="ray")
    assert not (tmp_path / "ray").exists()
    from muster.emulator.launch.ray import checks

    lines = describe(checks.examine(planned, None)).splitlines()
    assert sum(line.endswith("2 GPU: room for 2 that train on a GPU") for line in lines) == 1
    (verdict,) = (line for line in lines if "cluster: " in line and line.startswith("NO"))
    assert verdict.endswith("2 nodes, too small for 3 devices in 3 processes")

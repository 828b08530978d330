"""What is in the images, and what is not."""

import json
import subprocess
from collections.abc import Callable

import pytest

from muster.common.environment import container_environment

Docker = Callable[..., "subprocess.CompletedProcess[str]"]
Inside = Callable[..., "subprocess.CompletedProcess[str]"]

# As strictly as a fleet's containers run, and without a network.
STRICT = (
    "--rm --init --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges "
    "--network none"
).split()
BOTH = pytest.mark.parametrize("image", ["server", "client"])

SERVER = "import muster.server.__main__, muster.emulator.gateway.__main__"
PROBES = "import muster.emulator.verification.verifying"
CLIENT = (
    "import muster.client.processes.spawned, muster.client.processes.container, "
    "muster.client.processes.nursery, muster.server.evaluation.process, torch"
)
LEARN = """
import torch
from sklearn.datasets import load_digits
layer = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
layer(torch.tensor(load_digits().data, dtype=torch.float32)).square().mean().backward()
optimizer.step()
print("learned", torch.isfinite(layer.weight).all().item())
"""
FIT = """
import numpy as np
from muster.server.knowledge.calibration import quadratic, soft
from muster.server.knowledge.propensity import LogisticClassifier
features, taken = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([False, True, False, True])
print("fitted", bool(LogisticClassifier().fit(features, taken)["converged"]))
print(quadratic(features, np.array([2.0])).solver, soft(features, np.array([4.0])).solver)
"""


@pytest.fixture
def inside(docker: Docker, images: dict[str, str]) -> Inside:
    """Runs a command in a container of an image, as strictly as the fleet's run."""

    def call(
        image: str, *command: str, options: tuple[str, ...] = ()
    ) -> "subprocess.CompletedProcess[str]":
        return docker("run", *STRICT, *options, images[image], *command)

    return call


def works(ended: "subprocess.CompletedProcess[str]") -> str:
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("program", [SERVER, PROBES])
def test_the_server_image_imports_what_servers_and_gateways_run(
    inside: Inside, program: str
) -> None:
    works(inside("server", "python", "-W", "error", "-c", program))


@pytest.mark.parametrize("package", ["torch", "pandas", "matplotlib"])
def test_the_server_image_lacks_what_only_learning_and_reports_need(
    inside: Inside, package: str
) -> None:
    ended = inside("server", "python", "-c", f"import {package}")
    assert f"No module named '{package}'" in ended.stderr


def test_the_client_image_imports_what_devices_and_the_evaluation_run(inside: Inside) -> None:
    works(inside("client", "python", "-c", CLIENT))


def test_weights_are_fitted_and_solved_for_as_any_user(inside: Inside) -> None:
    ended = inside("server", "python", "-W", "error", "-c", FIT, options=("--user", "4242:4242"))
    assert works(ended) == "fitted True\nCLARABEL CLARABEL\n"


def test_a_step_is_learned_as_any_user_without_a_file_system_to_write(inside: Inside) -> None:
    ended = inside("client", "python", "-c", LEARN, options=("--user", "4242:4242"))
    assert works(ended) == "learned True\n"


@BOTH
def test_nobody_is_root(inside: Inside, image: str) -> None:
    assert works(inside(image, "sh", "-c", "id -u; id -g; id -un")) == "10001\n10001\nmuster\n"


@BOTH
@pytest.mark.parametrize("tool", ["gcc", "cc", "make", "pip", "pip3", "muster"])
def test_nothing_that_builds_or_installs_is_there(inside: Inside, image: str, tool: str) -> None:
    assert inside(image, "sh", "-c", f"command -v {tool}").returncode == 127


@BOTH
@pytest.mark.parametrize(
    "python", ["python", "/usr/bin/env -i PATH=/usr/local/bin:/usr/bin python3"]
)
def test_no_python_has_pip(inside: Inside, image: str, python: str) -> None:
    ended = inside(image, *python.split(), "-m", "pip")
    assert "No module named pip" in ended.stderr


@BOTH
def test_the_root_file_system_is_not_written(inside: Inside, image: str) -> None:
    for place in ("/", "/app/muster", "/var/lib/muster"):
        ended = inside(image, "touch", f"{place}/file")
        assert "Read-only file system" in ended.stderr
    works(inside(image, "touch", "/tmp/file"))


@BOTH
def test_a_new_volume_is_writable(docker: Docker, inside: Inside, image: str) -> None:
    volume = works(docker("volume", "create")).strip()
    try:
        mount = ("--volume", f"{volume}:/var/lib/muster")
        works(inside(image, "touch", "file", options=mount))
        works(inside(image, "touch", "other", options=(*mount, "--user", "4242:4242")))
    finally:
        works(docker("volume", "rm", volume))


@BOTH
def test_the_environment_is_the_one_that_grpc_must_find(
    docker: Docker, images: dict[str, str], image: str
) -> None:
    [found] = json.loads(works(docker("image", "inspect", images[image])))
    environment = dict(line.split("=", 1) for line in found["Config"]["Env"])
    assert environment.items() >= container_environment().items()
    assert environment["PYTHONUNBUFFERED"] == "1"


@BOTH
def test_an_image_says_what_it_is_for(
    docker: Docker, images: dict[str, str], inside: Inside, image: str
) -> None:
    [found] = json.loads(works(docker("image", "inspect", images[image])))
    labels = found["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == f"muster-{image}"
    assert images[image].endswith(":" + labels["org.opencontainers.image.version"])
    programs = {
        "server": "python -m muster.server ",
        "client": "python -m muster.client.processes.spawned\n",
    }
    assert programs[image] in works(inside(image))

"""Checks, before anything starts, whether a scenario can run in containers."""

import sys
from pathlib import Path

import docker
import docker.errors
import docker.types

import muster
from muster.common.clock import WallClock
from muster.common.errors import ConfigError
from muster.emulator.credentials.issuing import certifier_of
from muster.emulator.launch import doctor
from muster.emulator.launch.docker.daemon import connected
from muster.emulator.launch.docker.image_code import code_digest, has_other_code
from muster.emulator.planning import server_view
from muster.emulator.scenario.scenario import Scenario


def require(scenario: Scenario) -> None:
    """Check, before anything starts, that a scenario can run in containers.

    Raises:
        ConfigError: it cannot.
    """
    if scenario.task.hosted:
        raise ConfigError(
            f"task: {scenario.task.kind!r} runs an app that muster's images do not have; expected "
            f"the processes backend"
        )
    _require_images(scenario.launch.server_image, scenario.launch.client_image)
    directory = scenario.task.data.directory
    if directory is not None and not Path(directory).is_dir():
        raise ConfigError(f"task.data.directory: {directory} does not exist")
    scenario.task.check()
    server_view.require(scenario)
    doctor.require_gpus(scenario)
    doctor.require_ports(scenario)
    certifier_of(scenario.launch, required=True, clock=WallClock())
    if scenario.verify:
        require_reach()


def _require_images(*images: str) -> None:
    code = code_digest(map(Path, muster.__path__))
    with connected() as client:
        for image in images:
            try:
                labels = client.images.get(image).labels
            except docker.errors.ImageNotFound:
                raise ConfigError(
                    f"there is no image {image}; `make images` builds muster's own images, or set "
                    f"launch.server_image and launch.client_image to others"
                ) from None
            if has_other_code(labels, code):
                raise ConfigError(
                    f"the image {image} has other code of muster than this command, and the two "
                    f"may not understand each other: `make images` builds muster's own images "
                    f"again; then build those again that you made from them"
                )


def require_to_verify(scenario: Scenario) -> None:
    """Check, before anything starts, that the links of a scenario can be measured in containers.

    Raises:
        ConfigError: they cannot.
    """
    require(scenario)
    require_reach()


def require_reach() -> None:
    """Check that this machine can reach the networks of containers.

    Raises:
        ConfigError: it cannot.
    """
    if sys.platform != "linux":
        raise ConfigError(
            "links in containers are measured from this machine, but only Linux can reach the "
            "networks of containers; measure the links with processes, or do not set verify"
        )

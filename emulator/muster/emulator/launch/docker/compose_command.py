"""What `muster up` needs: a compose command, the images, and a scenario that it supports."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import docker
import docker.errors

from muster.common.errors import ConfigError
from muster.common.installation import VERSION
from muster.emulator.launch.docker.daemon import connected
from muster.emulator.scenario.scenario import Scenario

Say = Callable[[str], None]
"""Shows people a line about what happens."""


def compose_command() -> list[str]:
    """The compose command of this machine.

    Raises:
        ConfigError: there is none.
    """
    for command in (["docker", "compose"], ["docker-compose"]):
        with suppress(FileNotFoundError):
            said = subprocess.run([*command, "version"], capture_output=True, check=False)
            if said.returncode == 0:
                return command
    raise ConfigError(
        "there is neither `docker compose` nor docker-compose on this machine: install one of "
        "them, or use `muster run --backend docker`, which needs neither"
    )


def make_images(scenario: Scenario, say: Say) -> None:
    """Build muster's own images if they are missing and this is a clone of muster's repository."""
    script = Path(__file__).resolve().parents[5] / "deploy/images.sh"
    wanted = {
        "server": scenario.launch.server_image,
        "client": scenario.launch.client_image,
    }
    with connected() as client:
        for target, image in wanted.items():
            if image != f"muster-{target}:{VERSION}" or not script.is_file():
                continue
            try:
                client.images.get(image)
            except docker.errors.ImageNotFound:
                say(f"building the image {image}; this takes minutes, but only once")
                _build(script, target)


def _build(script: Path, target: str) -> None:
    done = subprocess.run([str(script), target], stdout=sys.stderr, check=False)
    if done.returncode:
        raise ConfigError(
            f"the image could not be built: {script} {target} ended with status "
            f"{done.returncode}; its output above says why, and see docs/containers.md"
        )


def require_supported(scenario: Scenario) -> None:
    """Check that a swarm, beside which no supervisor stays, supports the scenario.

    Raises:
        ConfigError: it does not.
    """
    if scenario.verify:
        raise ConfigError(
            "verify: links cannot be measured before the run if a swarm starts everything; "
            "run `muster verify --backend docker` first, or `muster up` without --swarm"
        )
    if scenario.faults:
        raise ConfigError(
            "faults: the supervisor injects and records faults, but a swarm runs the fleet "
            "without one; use `muster up` without --swarm, or `muster run --backend docker`"
        )

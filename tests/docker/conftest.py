"""Tests with containers. Only `make test-docker` runs them; it builds the images that they need."""

import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ASKED = os.environ.get("MUSTER_TEST_DOCKER") == "1"

Docker = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "docker: needs a docker daemon and muster's images")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        item.add_marker(pytest.mark.docker)
        if not ASKED:
            item.add_marker(pytest.mark.skip(reason="containers: make test-docker"))


@pytest.fixture(scope="session")
def docker() -> Docker:
    """Run docker with the given arguments; fail the test if there is no daemon."""
    if shutil.which("docker") is None:
        pytest.fail("MUSTER_TEST_DOCKER=1, but there is no docker on this machine")

    def call(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, timeout=100, check=False
        )

    answer = call("info")
    if answer.returncode:
        pytest.fail(f"MUSTER_TEST_DOCKER=1, but docker does not answer: {answer.stderr.strip()}")
    return call


@pytest.fixture(scope="session")
def images(docker: Docker) -> dict[str, str]:
    """Return the image names by part ("server", "client"); fail the test if one is missing."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    names = {part: f"muster-{part}:{version}" for part in ("server", "client")}
    missing = [name for name in names.values() if docker("image", "inspect", name).returncode]
    if missing:
        pytest.fail(f"images are missing: {', '.join(missing)}; make test-docker builds them")
    return names

"""`deploy/images.sh` with a `docker` that builds nothing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

DOCKER = """#!/bin/sh
case "$1 $2" in
    "image inspect") [ "$3" != --format ] || echo 1000000 ;;
esac
[ "$1" != build ] || echo "built with $*"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone without images and wheels, and a docker beside it."""
    (tmp_path / "deploy/wheels").mkdir(parents=True)
    shutil.copy(ROOT / "deploy/images.sh", tmp_path / "deploy/images.sh")
    (tmp_path / "pyproject.toml").write_text('version = "1.2"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(DOCKER)
    (tmp_path / "bin/docker").chmod(0o755)
    return tmp_path


def build(clone: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PIP_FLAGS"}
    path = f"{clone / 'bin'}:{kept['PATH']}"
    done = subprocess.run(
        [clone / "deploy/images.sh"],
        env={**kept, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_build_says_which_image_it_builds(clone: Path) -> None:
    said = build(clone)
    assert "building muster-server, 1 of 2" in said
    assert "building muster-client, 2 of 2" in said


def test_the_wheels_of_make_wheels_are_used_unless_somebody_says_otherwise(clone: Path) -> None:
    assert "--no-index" not in build(clone)
    (clone / "deploy/wheels/.made-3.11").touch()
    (clone / "deploy/wheels/x.whl").touch()
    said = build(clone)
    assert "packages from deploy/wheels alone" in said
    assert said.count("--build-arg PIP_FLAGS=--no-index") == 2
    assert "--no-index" not in build(clone, PIP_FLAGS="")
    assert "PIP_FLAGS=--quiet" in build(clone, PIP_FLAGS="--quiet")

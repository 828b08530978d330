"""`deploy/images.sh` with a `docker` that builds nothing; the code that images are said to have."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from muster.emulator.launch.docker.image_code import CODE_LABEL, code_digest, has_other_code

CODE = "emulator/muster/emulator/launch/docker/image_code.py"
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
    (tmp_path / CODE).parent.mkdir(parents=True)
    shutil.copy(ROOT / CODE, tmp_path / CODE)
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


def digest(clone: Path) -> str:
    """The digest of a clone's code as an installation of it computes it."""
    shutil.rmtree(clone / "installed", ignore_errors=True)
    for root in clone.glob("*/muster"):
        shutil.copytree(root, clone / "installed/code", dirs_exist_ok=True)
    return code_digest([clone / "installed/code"])


def test_of_a_file_in_two_folders_the_code_is_that_which_python_imports(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "module.py").write_text(folder.name)
    assert code_digest([first, second]) == code_digest([first])


def test_an_image_is_labelled_with_the_code_that_it_gets(clone: Path) -> None:
    (clone / "server/muster/server").mkdir(parents=True)
    module = clone / "server/muster/server/module.py"
    digests = []
    for text in ("x = 1", "x = 2"):
        module.write_text(text)
        digests.append(digest(clone))
        assert build(clone).count(f"--build-arg CODE={digests[-1]} ") == 2
    module.rename(module.with_name("other.py"))
    digests.append(digest(clone))
    (clone / "server/muster/server/page.html").write_text("not code")
    assert digest(clone) == digests[-1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    ("title", "code", "other"),
    [
        ("muster-server", "now", False),
        ("muster-server", "before", True),
        ("muster-client", None, True),  # of a Dockerfile that set no digest yet
        (None, None, False),  # of somebody else, who knows what is in it
    ],
)
def test_an_image_of_ours_with_other_code_is_found(
    title: str | None, code: str | None, other: bool
) -> None:
    labels = {"org.opencontainers.image.title": title, CODE_LABEL: code}
    given = {name: value for name, value in labels.items() if value is not None}
    assert has_other_code(given, "now") is other


def test_both_images_get_the_label() -> None:
    lines = (ROOT / "deploy/Dockerfile").read_text().splitlines()
    assert lines.count("ARG CODE=unknown") == 2
    assert [line.strip() for line in lines].count(f'{CODE_LABEL}="${{CODE}}"') == 2

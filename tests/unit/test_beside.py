"""muster can be installed beside flwr, mlflow, ray, tensorboard and wandb: its ranges allow the
versions that pip chose for all of them together (deploy/beside.py)."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
NEIGHBOURS = {"flwr", "mlflow", "ray", "tensorboard", "wandb"}
FOR_DEVELOPMENT = {"fuzz"}


def ranges() -> Iterator[Requirement]:
    """The requirements of muster and of all extras that are installed together."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from map(Requirement, project["dependencies"])
    for extra, lines in project["optional-dependencies"].items():
        if extra not in FOR_DEVELOPMENT:
            wanted = map(Requirement, lines)
            yield from (each for each in wanted if each.name != project["name"])


def versions() -> dict[str, str]:
    """The versions that were chosen together, by package."""
    lines = (ROOT / "deploy/beside.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines)


def test_the_neighbours_are_among_the_packages() -> None:
    assert versions().keys() >= NEIGHBOURS


@pytest.mark.parametrize("requirement", list(ranges()), ids=str)
def test_a_range_allows_the_version_that_was_chosen(requirement: Requirement) -> None:
    name = canonicalize_name(requirement.name)
    assert name in versions(), f"{name} is new: make beside"
    assert requirement.specifier.contains(versions()[name])

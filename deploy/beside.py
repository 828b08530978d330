"""Writes `beside.txt`: the versions that pip chooses for muster's packages if it installs muster
into one environment with flwr, mlflow, ray, tensorboard and wandb.

As long as the ranges of pyproject.toml allow these versions, all can be installed together:
`tests/unit/test_beside.py` needs no network for that. `make beside` asks the package index again.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ROOT / "deploy/beside.txt"
NEIGHBOURS = ("flwr", "mlflow", "ray", "tensorboard", "wandb")
FOR_DEVELOPMENT = {"fuzz"}


def resolved(*wanted: str) -> dict[str, str]:
    """The versions that pip would install into an empty environment, by package."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    done = subprocess.run(
        [*command, "--report", "-", *wanted], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    chosen = [each["metadata"] for each in json.loads(done.stdout)["install"]]
    return {each["name"].lower().replace("_", "-"): each["version"] for each in chosen}


def main() -> None:
    """Resolve, and write the versions of the packages that muster names."""
    from requirements import name_of

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    chosen = sorted(extras.keys() - FOR_DEVELOPMENT)
    lines = [*project["dependencies"], *(line for extra in chosen for line in extras[extra])]
    versions = resolved(f".[{','.join(chosen)}]", *NEIGHBOURS)
    names = {*map(name_of, lines), *NEIGHBOURS} - {project["name"]}
    VERSIONS.write_text("".join(f"{name}=={versions[name]}\n" for name in sorted(names)))


if __name__ == "__main__":
    main()

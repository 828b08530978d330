"""Which third-party packages each image holds.

The names are here and nowhere else; ranges come from `pyproject.toml`, versions from
`constraints.txt`. It needs the standard library alone, so that the build can run it:

    python deploy/requirements.py LIST    # server, client, build or all: lines for pip
    python deploy/requirements.py --check # what is written here and in the Dockerfile still holds
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036 - the base image decides which Python this is
    sys.exit(f"muster needs Python 3.11 or newer, and this one is {sys.version.split()[0]}")

import tomllib

ROOT = Path(__file__).parents[1]

BOTH = {
    "grpcio",
    "numpy",
    "orjson",
    "protobuf",
    "pydantic",
    "safetensors",
    "scikit-learn",
    "scipy",
    "tomli-w",
    "uvloop",
    "xxhash",
}
EXTRAS = {"metrics"}
"""The extras of which the images have the packages."""

SERVER = BOTH | {"cvxpy", "dp-accounting", "prometheus-client"}
CLIENT = BOTH | {"cloudpickle", "torch"}
COMMAND = {
    "click",
    "cmaes",
    "cryptography",
    "docker",
    "jinja2",
    "matplotlib",
    "pandas",
    "pyyaml",
    "rich",
}
"""What only the `muster` command needs, which is in neither image."""

IMAGES = {"server": SERVER, "client": CLIENT}

PROGRAMS = {
    "server": [
        "muster.server.__main__",
        "muster.emulator.gateway.__main__",
        "muster.emulator.verification.verifying",
    ],
    "client": [
        "muster.client.processes.spawned",
        "muster.client.processes.container",
        "muster.client.processes.nursery",
        "muster.server.evaluation.process",
    ],
}
"""What an image must be able to import."""

ELSEWHERE = {
    "server": (
        "muster.tasks.",
        "muster.client.training.augmentations",
        "muster.server.evaluation.process",
        "muster.server.evaluation.breakdown",
    ),
    "client": ("muster.server.",),
}
"""Modules that an image's programs import, and whose functions run in the other image. What other
modules' functions import, when they are called, the image holds too."""

_IMPORT = """
import ast, importlib, json, sys
from importlib.metadata import packages_distributions
from pathlib import Path

programs, elsewhere = map(json.loads, sys.argv[1:])
for program in programs:
    importlib.import_module(program)

def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module

users = {}
for name, module in sorted(sys.modules.items()):
    users.setdefault(name.partition(".")[0], "importing its programs")
    if not name.startswith("muster.") or name.startswith(tuple(elsewhere)):
        continue
    if getattr(module, "__file__", None):
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for found in imported(node):
                    users.setdefault(found.partition(".")[0], f"{node.name} of {name}")
known = packages_distributions()
print(json.dumps({
    dist.lower().replace("_", "-"): user
    for module, user in sorted(users.items()) for dist in known.get(module, [])
}))
"""


def requirements(project: dict[str, Any], wanted: str) -> list[str]:
    """Lines for pip, as pyproject.toml has them."""
    build: list[str] = project["build-system"]["requires"]
    if wanted == "build":
        return build
    packages = dependencies(project)
    if wanted == "all":
        return [*(line for line in packages if name_of(line) in SERVER | CLIENT), *build]
    return [line for line in packages if name_of(line) in IMAGES[wanted]]


def dependencies(project: dict[str, Any]) -> list[str]:
    """The dependencies, with those of EXTRAS."""
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    packages: list[str] = project["project"]["dependencies"]
    return [*packages, *(line for extra in sorted(EXTRAS) for line in extras[extra])]


def name_of(requirement: str) -> str:
    """A requirement's package."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return found[0].lower().replace("_", "-")


def complaints(project: dict[str, Any]) -> list[str]:
    """What no longer agrees with the code or with pyproject.toml."""
    packages = {name_of(line) for line in dependencies(project)}
    named = SERVER | CLIENT | COMMAND
    found = [
        f"{name}: a dependency in pyproject.toml; say here which image needs it"
        for name in sorted(packages - named)
    ]
    found += [
        f"{name}: named here, but no dependency in pyproject.toml"
        for name in sorted(named - packages)
    ]
    for image, programs in PROGRAMS.items():
        arguments = map(json.dumps, (programs, ELSEWHERE[image]))
        ended = subprocess.run(
            [sys.executable, "-c", _IMPORT, *arguments], capture_output=True, text=True, check=False
        )
        if ended.returncode:
            found.append(f"{image}: {ended.stderr.strip().splitlines()[-1]}")
            continue
        users: dict[str, str] = json.loads(ended.stdout)
        found += [
            f"{name}: needed by {users[name]} in the image {image}, which lacks it"
            for name in sorted(users.keys() & packages - IMAGES[image])
        ]
    return found + environment_complaints()


def environment_complaints() -> list[str]:
    """Lines that the Dockerfile's ENV lacks: gRPC reads them before muster could set them."""
    from muster.common.environment import container_environment

    text = (ROOT / "deploy/Dockerfile").read_text()
    return [
        f'deploy/Dockerfile: ENV {name}="{value}" is expected, as in muster.common.environment'
        for name, value in container_environment().items()
        if f'{name}="{value}"' not in text
    ]


def main(arguments: list[str]) -> int:
    """Print a list, or check; the exit status."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    if arguments == ["--check"]:
        found = complaints(project)
        for line in found:
            print(f"deploy/requirements.py: {line}", file=sys.stderr)  # noqa: T201
        return 1 if found else 0
    if len(arguments) != 1 or arguments[0] not in {*IMAGES, "build", "all"}:
        sys.exit(__doc__)
    print("\n".join(requirements(project, arguments[0])))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

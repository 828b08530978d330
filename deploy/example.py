"""Writes deploy/compose.example.yml: what `muster up examples/rural.toml` writes, on a machine of
four cores, with made-up places; `--check` writes nothing, and exits with 1 where it differs.
"""

import os
import sys
import tempfile
from itertools import count
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "deploy/compose.example.yml"

_FOLDER = "/home/you/muster/runs/rural"
_USER = (1000, 1000)
_CORES = 4
_FIRST_PORT = 40001


def example() -> str:
    """What the file should hold."""
    # What the person at this machine has set is no part of it.
    for name in ("MUSTER_DATA", "PYTHONPATH"):
        os.environ.pop(name, None)
    from muster.emulator.launch.docker.compose import Project, compose_text
    from muster.emulator.launch.docker.compose_project import fleet
    from muster.emulator.launch.docker.services import Site
    from muster.emulator.launch.process_configs import ProcessConfigs
    from muster.emulator.scenario.reading import read_scenario

    scenario = read_scenario(ROOT / "examples/rural.toml")
    prepared = {"examples": [1] * scenario.devices, "schema": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part in ("setup", "devices"):
            (folder / part).mkdir()
        site, ports = Site(scenario, folder), count(_FIRST_PORT)
        services = fleet(ProcessConfigs(scenario, folder), site, prepared, lambda: next(ports))
        project = Project(
            name="muster-rural",
            scenario=scenario.name,
            folder=folder,
            shown="runs/rural",
            user=_USER,
            cores=_CORES,
            networks=site.networks(),
        )
        return compose_text(project, services).replace(str(folder), _FOLDER)


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when it is out of date.")
def main(check: bool) -> None:
    """Write deploy/compose.example.yml."""
    text = example()
    old = EXAMPLE.read_text(encoding="utf-8") if EXAMPLE.exists() else ""
    if text != old and check:
        sys.exit("deploy/compose.example.yml is not what the code says: make docs")
    if text != old:
        EXAMPLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

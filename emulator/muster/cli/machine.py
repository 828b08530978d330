"""`muster doctor`, `verify` and `certs`: check this machine and the links of a scenario, and make a
certificate authority of one's own."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.options import (
    BACKEND,
    DATA,
    JSON,
    OPTIONAL_SCENARIO,
    SCENARIO,
    SETTINGS,
    NumberRange,
    failures_as_status,
    print_result,
)
from muster.common.environment import settle_environment
from muster.common.errors import ConfigError
from muster.common.files import require_writable, write_atomic

if TYPE_CHECKING:
    from muster.emulator.launch.backend import BackendName


@click.command()
@OPTIONAL_SCENARIO
@BACKEND
@DATA
@JSON
@failures_as_status
def doctor(scenario: Path | None, backend: "BackendName", data: str | None, as_json: bool) -> None:
    """Check what this machine, or a Ray cluster, can carry: the fleet of SCENARIO, or 10
    devices."""
    from muster.emulator.launch.choice import kind_of
    from muster.emulator.launch.doctor import Finding, describe
    from muster.emulator.scenario.reading import read_scenario
    from muster.tasks.files import DATA_VARIABLE

    read, directory = None, data or os.environ.get(DATA_VARIABLE)
    problems = []
    if scenario is not None:
        read = read_scenario(scenario, (), data)
        directory = read.task.data.directory
        try:
            read.task.check()
        except ConfigError as error:
            problems = [Finding("data", str(error), enough=False)]
    findings = [
        *kind_of(backend).examine(read, Path(directory) if directory else None),
        *problems,
    ]
    print_result(
        lambda: describe(findings), lambda: [asdict(finding) for finding in findings], as_json
    )
    if not all(finding.enough for finding in findings):
        sys.exit(1)


@click.command()
@SCENARIO
@click.option(
    "--seconds",
    type=NumberRange(min=0.5),
    default=5.0,
    metavar="S",
    help="How long to measure each rate; default 5.",
)
@click.option(
    "--tolerance",
    type=NumberRange(min=0, min_open=True),
    default=0.05,
    metavar="SHARE",
    help="Tolerance of rates and round trips; default 0.05.",
)
@click.option(
    "--devices",
    type=click.IntRange(min=0),
    default=8,
    metavar="K",
    help="Devices of each group to measure one by one, drawn at random; default 8, 0: all.",
)
@click.option(
    "--json",
    "out",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Also write the measurements as JSON; `-`: print them instead of the tables.",
)
@BACKEND
@SETTINGS
@DATA
@failures_as_status
def verify(
    scenario: Path,
    seconds: float,
    tolerance: float,
    devices: int,
    out: Path | None,
    backend: "BackendName",
    settings: tuple[str, ...],
    data: str | None,
) -> None:
    """Measure SCENARIO's links: whether rates, round trips and fairness are as it asks."""
    from muster.emulator.scenario.reading import read_scenario

    read = read_scenario(scenario, settings, data)
    printed = out == Path("-")
    if out is not None and not printed:
        require_writable(out)
    # gRPC reads its variables when it is imported; it should behave here as in devices.
    settle_environment()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from muster.emulator.verification import Tolerances, verify
    from muster.emulator.verification.tables import describe

    found = verify(
        read,
        seconds=seconds,
        tolerances=Tolerances(rate=tolerance, rtt=tolerance),
        devices=devices,
        backend=backend,
        show=lambda step: click.echo(step, err=True),
    )
    if out is not None and not printed:
        write_atomic(out, json.dumps(found.to_json(), indent=1).encode() + b"\n")
    print_result(lambda: describe(found), found.to_json, printed)
    if not found.ok:
        sys.exit(1)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--days",
    type=NumberRange(min=1, max=3650),
    default=365.0,
    metavar="N",
    help="How long the authority is valid; default 365.",
)
@failures_as_status
def certs(folder: Path, days: float) -> None:
    """Make a certificate authority in FOLDER, for runs that set launch.authority."""
    from muster.common.clock import WallClock
    from muster.emulator.credentials.authority import make_authority

    made = make_authority(folder, WallClock().now(), days * 86_400)
    click.echo(f"{folder} is an authority until {made.expires_at:%Y-%m-%d %H:%M} UTC")
    settings = f"--set launch.tls=true --set launch.authority={folder.resolve()}"
    click.echo(f"use it with: muster run SCENARIO {settings}")

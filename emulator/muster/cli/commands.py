"""The command line: a thin layer over `muster.emulator.run` and the emulator's other functions.

Exit status: 0 for success; 1 if a run failed or was stopped, if an expectation of its scenario does
not hold, if an audit found a difference, or if a link is not what was asked for; 2 if the scenario,
a flag or a folder is wrong, in which case nothing was started or is left.
"""

import click

from muster.cli.devices import devices
from muster.cli.experiments import compare, plan, study
from muster.cli.faults import export_faults, heal, inject, pause, unpause
from muster.cli.following import audit, export, live, report, revoke, status, stop, watch
from muster.cli.laboratory import calibrate, life, what_if
from muster.cli.league import league
from muster.cli.listing import list_names
from muster.cli.machine import certs, doctor, verify
from muster.cli.options import Commands
from muster.cli.projects import flower, init
from muster.cli.running import down, run, up
from muster.cli.traces import trace
from muster.cli.worst import worst
from muster.common.installation import VERSION


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="muster")
def main() -> None:
    """A federated-learning fleet, emulated over real networking."""


for command in (
    run,
    plan,
    verify,
    compare,
    study,
    what_if,
    league,
    worst,
    life,
    calibrate,
    flower,
    up,
    down,
    status,
    watch,
    live,
    stop,
    revoke,
    inject,
    heal,
    pause,
    unpause,
    export_faults,
    doctor,
    certs,
    report,
    export,
    audit,
    trace,
    devices,
    init,
    list_names,
):
    main.add_command(command)

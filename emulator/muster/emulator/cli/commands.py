"""The command line: a thin layer over `muster.emulator.run` and the emulator's other functions.

Exit status: 0 for success; 1 if a run failed or was stopped, if an expectation of its scenario does
not hold, if an audit found a difference, or if a link is not what was asked for; 2 if the scenario,
a flag or a folder is wrong, in which case nothing was started or is left.
"""

import click

from muster.common.installation import VERSION
from muster.emulator.cli.auditing import audit
from muster.emulator.cli.certificates import certs
from muster.emulator.cli.experiments import compare, plan, study
from muster.emulator.cli.exporting import export
from muster.emulator.cli.faults import export_faults, heal, inject, pause, unpause
from muster.emulator.cli.flower import flower
from muster.emulator.cli.following import report, revoke, status, stop, watch
from muster.emulator.cli.listing import list_names
from muster.emulator.cli.live import live
from muster.emulator.cli.machine import doctor, verify
from muster.emulator.cli.options import Commands
from muster.emulator.cli.projects import init
from muster.emulator.cli.running import down, run, up
from muster.emulator.cli.traces import trace


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
    init,
    list_names,
):
    main.add_command(command)

"""`muster audit`: checks a run folder, and repeats the run's own rule."""

import sys
from pathlib import Path

import click

from muster.cli.options import JSON, RUN, failures_as_status, print_result


@click.command()
@RUN
@JSON
@failures_as_status
def audit(folder: Path, as_json: bool) -> None:
    """Check the run in FOLDER (default runs/latest): each update counts at most once, and weights,
    models, journal and summary agree with the ledger. Exits with 1 if they do not."""
    from muster.emulator.run_audit import auditing

    result = auditing.audit(folder)
    print_result(lambda: auditing.describe(result), result.as_json, as_json)
    if not result.agrees:
        sys.exit(1)

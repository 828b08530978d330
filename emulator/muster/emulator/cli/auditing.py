"""`muster audit`: checks a run folder by other code than that which made it."""

import json
import sys
from pathlib import Path

import click

from muster.emulator.cli.options import RUN, failures_as_status


@click.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@failures_as_status
def audit(folder: Path, as_json: bool) -> None:
    """Check the run in FOLDER (default runs/latest): each update counts at most once, and weights,
    models, journal and summary agree with the ledger. Exits with 1 if they do not."""
    from muster.emulator.run_audit import auditing

    result = auditing.audit(folder)
    text = json.dumps(result.as_json(), allow_nan=False) if as_json else auditing.describe(result)
    click.echo(text)
    if not result.agrees:
        sys.exit(1)

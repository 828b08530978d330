"""`muster league`: aggregators beside each other, in fleets that behave differently."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from muster.cli.options import (
    DATA,
    JSON,
    NumberRange,
    failures_as_status,
    folder_option,
    print_result,
    tell_user,
)
from muster.common.errors import ConfigError
from muster.emulator.run_folder.folder import shown


@click.command()
@click.option(
    "--rules",
    multiple=True,
    metavar="A,B,…",
    help="Aggregators: names, tables with kind, module:Class, or FILE.py:Class; default ten.",
)
@click.option(
    "--scenarios",
    multiple=True,
    metavar="A,B,…",
    help="Scenarios of the league, or files; default all of the league.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="K",
    help="Number of seeds; default 5.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="The first seed; default 201."
)
@click.option(
    "--target",
    type=NumberRange(0, 1),
    metavar="SHARE",
    help="The accuracy until which rounds are counted; default 0.8.",
)
@folder_option("--out", "The folder to create; default runs/league-TIME.")
@folder_option("--resume", "Continue the league in DIR; runs that ended are kept.")
@DATA
@click.option(
    "--jobs", type=int, metavar="J", help="How many runs at the same time; default one a core."
)
@click.option("--quiet", is_flag=True, help="Print only the table.")
@JSON
@failures_as_status
def league(
    rules: tuple[str, ...],
    scenarios: tuple[str, ...],
    seeds: int | None,
    seed: int | None,
    target: float | None,
    out: Path | None,
    resume: Path | None,
    data: str | None,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Play aggregators in twelve scenarios in virtual time, and compare each with fedavg."""
    from muster.laboratory.league import league, resume_league

    say = partial(tell_user, quiet=quiet)
    at_once = len(os.sched_getaffinity(0)) if jobs is None else jobs
    given: dict[str, Any] = {"seeds": seeds, "first_seed": seed, "target": target}
    chosen = {name: value for name, value in given.items() if value is not None}
    if resume is not None:
        if rules or scenarios or chosen or out or data:
            raise ConfigError(
                "--resume continues the league as it began; expected only --jobs, --quiet "
                "and --json with it"
            )
        done = resume_league(resume, jobs=at_once, say=say)
    else:
        done = league(rules, scenarios, **chosen, data=data, out=out, jobs=at_once, say=say)
    from muster.laboratory.league.page import describe, numbers_of

    print_result(
        lambda: describe(done), lambda: {"folder": str(done.folder), **numbers_of(done)}, as_json
    )
    if done.status != "completed":
        click.echo(f"Resume it with: muster league --resume {shown(done.folder)}", err=True)
        sys.exit(1)

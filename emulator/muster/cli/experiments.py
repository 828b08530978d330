"""`muster plan`, `compare` and `study`: compute a fleet without running it, and run variants."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.listing import completing
from muster.cli.options import (
    DATA,
    FIGURES,
    JSON,
    OPTIONAL_SCENARIO,
    SCENARIO,
    SETTINGS,
    TRACK,
    failures_as_status,
    folder_option,
    print_result,
    require_one_source,
    tell_user,
    watching,
    watching_in_brief,
)
from muster.common.clock import WallClock
from muster.common.errors import ConfigError
from muster.emulator.run_folder.folder import making, shown

if TYPE_CHECKING:
    from muster.simulation.workers import WorkerBackend


@click.command()
@SCENARIO
@folder_option("--out", "Folder for plan.png, plan.csv, population.csv; default plans/NAME.")
@SETTINGS
@DATA
@JSON
@failures_as_status
def plan(
    scenario: Path, out: Path | None, settings: tuple[str, ...], data: str | None, as_json: bool
) -> None:
    """Compute the life of SCENARIO's fleet without running it: which devices take part when, and
    which never can."""
    from muster.emulator.planning import plan
    from muster.emulator.planning.result import write_plan
    from muster.emulator.report.plan_figure import write_figure
    from muster.emulator.report.plan_tables import describe, totals_of
    from muster.emulator.scenario.reading import read_scenario

    read = read_scenario(scenario, settings, data)
    folder = Path("plans") / read.name if out is None else out
    clock = WallClock()
    with making(folder):
        began = clock.monotonic()
        with click.progressbar(length=100, file=sys.stderr, label="planning") as bar:
            found = plan(read, progress=lambda done, of: bar.update(100 * done // of - bar.pos))
        took_s = clock.monotonic() - began
        write_plan(folder, found)
        write_figure(folder / "plan.png", found)
    where = f"planned in {took_s:.1f} s; {shown(folder)}/plan.png, plan.csv, population.csv"
    print_result(
        lambda: f"{describe(found)}\n\n  {where}",
        lambda: {"folder": str(folder), **totals_of(found)},
        as_json,
    )


@click.command()
@OPTIONAL_SCENARIO
@click.option(
    "--vary",
    multiple=True,
    metavar="KEY=A,B,…",
    help="Values to compare; with several --vary options, every combination is run.",
)
@click.option(
    "--seeds",
    type=int,
    default=1,
    metavar="K",
    help="Run each variant with K seeds, starting at the scenario's; default 1.",
)
@folder_option("--out", "The folder to create; default runs/NAME-compare-TIME.")
@folder_option("--resume", "Continue the comparison in DIR; runs that ended are kept.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting in all variants.",
)
@DATA
@FIGURES
@TRACK
@click.option("--quiet", is_flag=True, help="Print only problems and the table.")
@JSON
@failures_as_status
def compare(
    scenario: Path | None,
    vary: tuple[str, ...],
    seeds: int,
    out: Path | None,
    resume: Path | None,
    settings: tuple[str, ...],
    data: str | None,
    kind: str | None,
    trackers: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Run SCENARIO in variants, each with the same seeds, and compare them."""
    from muster.emulator.comparison import compare, resume_comparison
    from muster.emulator.comparison.variants import parse_vary

    watch = partial(watching, quiet=quiet)
    require_one_source(scenario, resume)
    if resume is not None:
        if vary or settings or out or data or seeds != 1:
            raise ConfigError(
                "--resume continues the comparison as it began; expected no other flag "
                "but --figures, --track, --quiet and --json"
            )
        done = resume_comparison(resume, figures=kind or "png", track=trackers, watch=watch)
    else:
        assert scenario is not None
        done = compare(
            scenario,
            vary=parse_vary(vary),
            seeds=seeds,
            settings=settings,
            data=data,
            out=out,
            figures=kind or "png",
            track=trackers,
            watch=watch,
        )
    from muster.emulator.comparison.tables import describe, numbers_of

    print_result(
        lambda: describe(done),
        lambda: {"folder": str(done.folder), **numbers_of(done)},
        as_json,
    )
    if done.status != "completed":
        click.echo(f"Resume it with: muster compare --resume {shown(done.folder)}", err=True)
        sys.exit(1)


@click.command()
@click.argument("name", required=False, shell_complete=completing("studies"))
@click.option(
    "--quick", is_flag=True, help="Run a smaller study with fewer seeds, to see that it works."
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="The first seed; default 101."
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="K",
    help="Number of consecutive seeds; default 5, with --quick fewer.",
)
@folder_option("--out", "The folder to create; default runs/study-NAME-TIME.")
@folder_option("--resume", "Continue the study in DIR; runs that ended are kept.")
@click.option(
    "--backend",
    type=click.Choice(["processes", "docker", "ray", "memory"]),
    help="Where fleets run: processes of this machine (default), containers, a Ray cluster, or the "
    "memory of one process, in virtual time, which gives the same numbers in lockstep.",
)
@DATA
@click.option(
    "--jobs", type=int, default=1, metavar="J", help="How many runs at the same time; default 1."
)
@click.option("--quiet", is_flag=True, help="Print only problems and the claims.")
@JSON
@failures_as_status
def study(
    name: str | None,
    quick: bool,
    seed: int | None,
    seeds: int | None,
    out: Path | None,
    resume: Path | None,
    backend: "WorkerBackend | None",
    data: str | None,
    jobs: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the study NAME and judge its claims: the experiment of a paper, or one of our own."""
    from muster.studies.console import describe, options_of, require_name
    from muster.studies.running import resume_study, study

    say = partial(tell_user, quiet=quiet)
    watch = partial(watching_in_brief, quiet=quiet)
    if resume is not None:
        if name or quick or seed is not None or seeds or out or backend or data:
            raise ConfigError(
                "--resume continues the study as it began; expected only --jobs, --quiet "
                "and --json with it"
            )
        done = resume_study(resume, jobs=jobs, watch=watch, say=say)
    else:
        kind = require_name(name)
        options = options_of(kind, quick, seed, seeds, data, backend)
        done = study(kind, options, out=out, jobs=jobs, watch=watch, say=say)
    print_result(
        lambda: describe(done), lambda: {"folder": str(done.folder), **done.to_json()}, as_json
    )
    if done.status != "completed":
        click.echo(f"Resume it with: muster study --resume {shown(done.folder)}", err=True)
    if not done.holds:
        sys.exit(1)

"""The command line: a thin layer over `muster.emulator.run` and what a run leaves.

Exit status: 0 done, 1 the run failed or was stopped, or a link is not what was asked for, 2 the
scenario, a flag or a folder is wrong, and nothing was started or is left.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar

import click

from muster.common.clock import WallClock
from muster.common.errors import ConfigError, LedgerError, MusterError
from muster.common.files import os_reason, refusal_of, require_writable, write_atomic
from muster.emulator.runs.run_folder import making, shown

if TYPE_CHECKING:
    from muster.emulator.launch.backend import BackendName
    from muster.emulator.runs.supervisor import Show

P = ParamSpec("P")
T = TypeVar("T")

_RUN = click.argument("folder", type=click.Path(path_type=Path), default=Path("runs/latest"))
_BACKEND = click.option(
    "--backend",
    type=click.Choice(["processes", "docker"]),
    default="processes",
    help="The fleet is processes of this machine (default), or containers.",
)
_DATA = click.option("--data", metavar="DIR", help="Data directory; before MUSTER_DATA.")


def _failures_as_status(command: Callable[P, T]) -> Callable[P, T]:
    """Print what muster raises on purpose, without a traceback, and exit as promised."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except (ConfigError, LedgerError) as error:
            _complain(error)
            sys.exit(2)
        except MusterError as error:
            _complain(error)
            sys.exit(1)

    return guarded


class _Commands(click.Group):
    """The commands. What the operating system refuses and no command expects is told in a line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            # An error of a file names it; what has no name is standard output.
            what = "" if error.filename else "standard output cannot be written: "
            _complain(what + os_reason(error))
            sys.exit(1)
        finally:
            _abandon(sys.stdout)
            _abandon(sys.stderr)


def _complain(error: object) -> None:
    with suppress(OSError):  # the exit status says it too
        click.echo(f"error: {error}", err=True)


def _abandon(stream: TextIO) -> None:
    """Keep Python from trying again, when it ends, to write what a stream has not taken."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muster")
def main() -> None:
    """A federated-learning fleet, emulated over real networking."""


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Run folder to make; default runs/NAME-TIME.")  # fmt: skip
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR",
              help="Go on with a run where its ledger ends; takes no scenario.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Change a setting: --set server.rounds=5 --set groups[0].count=20.")  # fmt: skip
@_BACKEND
@_DATA
@click.option("--quiet", is_flag=True, help="Only problems and the final line.")
@_failures_as_status
def run(
    scenario: Path | None,
    out: Path | None,
    resume: Path | None,
    backend: "BackendName",
    settings: tuple[str, ...],
    data: str | None,
    quiet: bool,
) -> None:
    """Run SCENARIO: a server, and a process for every device."""
    from muster.emulator.results.summary import describe
    from muster.emulator.runs import running
    from muster.emulator.runs.progress import LenientProgress, progress
    from muster.emulator.runs.run_folder import run_folder
    from muster.emulator.scenario.scenario import read_scenario

    if (scenario is None) == (resume is None):
        raise ConfigError("expected a scenario, or --resume DIR; examples/ has scenarios")
    if resume is not None and (settings or out or data):
        raise ConfigError("--resume goes on as the run began: no --set, --out or --data with it")
    source = scenario if resume is None else run_folder(resume) / "scenario.toml"
    assert source is not None
    read = read_scenario(source, settings, data)
    display = LenientProgress(progress(sys.stderr, WallClock(), title=read.name, quiet=quiet))
    try:
        if resume is not None:
            done = running.resume(resume, backend=backend, show=display.show)
        else:
            done = running.run(read, out=out, backend=backend, show=display.show)
    finally:
        display.close()
    click.echo(describe(done.summary, done.folder))
    if done.status == "stopped":
        how = f"{shown(done.folder)}{' --backend docker' if backend == 'docker' else ''}"
        click.echo(f"Go on with it: muster run --resume {how}", err=True)
        sys.exit(1)


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder of plan.png, plan.csv, population.csv; default plans/NAME.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Change a setting: --set server.rounds=5 --set groups[0].count=20.")  # fmt: skip
@_DATA
@_failures_as_status
def plan(scenario: Path, out: Path | None, settings: tuple[str, ...], data: str | None) -> None:
    """The life of SCENARIO's fleet without running it: who takes part when, and who never can."""
    from muster.emulator.experiments.planning import plan
    from muster.emulator.experiments.planning.figure import write_figure
    from muster.emulator.experiments.planning.tables import describe, write_plan
    from muster.emulator.scenario.scenario import read_scenario

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
    click.echo(describe(found))
    click.echo(f"\n  planned in {took_s:.1f} s; {shown(folder)}/plan.png, plan.csv, population.csv")


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--seconds", type=click.FloatRange(min=0.5), default=5.0, metavar="S",
              help="How long each rate is measured; default 5.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(min=0, min_open=True), default=0.05,
              metavar="SHARE", help="Of rates and round trips; default 0.05.")  # fmt: skip
@click.option("--devices", type=click.IntRange(min=0), default=8, metavar="K",
              help="Devices of a group measured one by one, drawn; default 8, 0: all.")  # fmt: skip
@click.option("--json", "out", type=click.Path(path_type=Path), metavar="FILE",
              help="Also write what was measured as JSON.")  # fmt: skip
@_BACKEND
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Change a setting: --set seed=5 --set groups[0].count=20.")  # fmt: skip
@_DATA
@_failures_as_status
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
    """Measure SCENARIO's links: rates, round trips and fairness, against what was asked."""
    from muster.emulator.scenario.scenario import read_scenario
    from muster.wire.channels import ENVIRONMENT

    read = read_scenario(scenario, settings, data)
    if out is not None:
        require_writable(out)
    # gRPC reads them when it is imported, and should be here what it is in devices.
    for name, value in {**ENVIRONMENT, "GRPC_VERBOSITY": "ERROR"}.items():
        os.environ.setdefault(name, value)
    from muster.emulator.links.verification import Tolerances, verify
    from muster.emulator.links.verification.tables import describe

    found = verify(
        read,
        seconds=seconds,
        tolerances=Tolerances(rate=tolerance, rtt=tolerance),
        devices=devices,
        backend=backend,
        show=lambda step: click.echo(step, err=True),
    )
    if out is not None:
        write_atomic(out, json.dumps(found.to_json(), indent=1).encode() + b"\n")
    click.echo(describe(found))
    if not found.ok:
        sys.exit(1)


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path), required=False)
@click.option("--vary", multiple=True, metavar="KEY=A,B,…",
              help="Values to compare; of several keys every combination.")  # fmt: skip
@click.option("--seeds", type=int, default=1, metavar="K",
              help="Run each variant with K seeds, from the scenario's on; default 1.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder to make; default runs/NAME-compare-TIME.")  # fmt: skip
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR",
              help="Go on with a comparison; runs that ended are not run again.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Change a setting of all variants.")  # fmt: skip
@_DATA
@click.option("--quiet", is_flag=True, help="Only problems and the table.")
@_failures_as_status
def compare(
    scenario: Path | None,
    vary: tuple[str, ...],
    seeds: int,
    out: Path | None,
    resume: Path | None,
    settings: tuple[str, ...],
    data: str | None,
    quiet: bool,
) -> None:
    """Run SCENARIO in variants, each with the same seeds, and compare them."""
    from muster.emulator.experiments.comparison import compare, resume_comparison
    from muster.emulator.experiments.comparison.variants import parse_vary

    watch = partial(_watching, quiet=quiet)
    if (scenario is None) == (resume is None):
        raise ConfigError("expected a scenario, or --resume DIR; examples/ has scenarios")
    if resume is not None:
        if vary or settings or out or data or seeds != 1:
            raise ConfigError("--resume goes on as the comparison began: no other flag but --quiet")
        done = resume_comparison(resume, watch=watch)
    else:
        assert scenario is not None
        done = compare(scenario, vary=parse_vary(vary), seeds=seeds, settings=settings, data=data,
                       out=out, watch=watch)  # fmt: skip
    from muster.emulator.experiments.comparison.tables import describe

    click.echo(describe(done))
    if done.status != "completed":
        click.echo(f"Go on with it: muster compare --resume {shown(done.folder)}", err=True)
        sys.exit(1)


@main.command()
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Smaller, and with fewer seeds: to see that it works.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N",
              help="The first seed; default 101.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(min=1), metavar="K",
              help="Seeds that follow one another; default 5, with --quick fewer.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder to make; default runs/study-NAME-TIME.")  # fmt: skip
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR",
              help="Go on with a study; runs that ended are not run again.")  # fmt: skip
@click.option("--backend", type=click.Choice(["processes", "docker"]),
              help="The fleet is processes of this machine (default), or containers.")  # fmt: skip
@_DATA
@click.option("--jobs", type=int, default=1, metavar="J", help="Runs at once; default 1.")
@click.option("--quiet", is_flag=True, help="Only problems and the claims.")
@_failures_as_status
def study(
    name: str | None,
    quick: bool,
    seed: int | None,
    seeds: int | None,
    out: Path | None,
    resume: Path | None,
    backend: "BackendName | None",
    data: str | None,
    jobs: int,
    quiet: bool,
) -> None:
    """Run the study NAME, and judge its claims: a paper's figure over the real fleet."""
    from muster.emulator.studies.console import describe, options_of, require_name
    from muster.emulator.studies.running import resume_study, study

    say = partial(_say, quiet=quiet)
    watch = partial(_watching_in_brief, quiet=quiet)
    if resume is not None:
        if name or quick or seed is not None or seeds or out or backend or data:
            raise ConfigError(
                "--resume goes on as the study began: only --jobs and --quiet with it"
            )
        done = resume_study(resume, jobs=jobs, watch=watch, say=say)
    else:
        kind = require_name(name)
        options = options_of(kind, quick, seed, seeds, data, backend)
        done = study(kind, options, out=out, jobs=jobs, watch=watch, say=say)
    click.echo(describe(done))
    if done.status != "completed":
        click.echo(f"Go on with it: muster study --resume {shown(done.folder)}", err=True)
    if not done.holds:
        sys.exit(1)


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Run folder to make; default runs/NAME-TIME.")  # fmt: skip
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR",
              help="Start DIR's compose file again, as it is; takes no scenario.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Change a setting: --set server.rounds=5 --set groups[0].count=20.")  # fmt: skip
@_DATA
@_failures_as_status
def up(
    scenario: Path | None,
    out: Path | None,
    resume: Path | None,
    settings: tuple[str, ...],
    data: str | None,
) -> None:
    """Start SCENARIO's fleet in containers, with Docker Compose, and leave it running."""
    from muster.emulator.launch.docker import up as containers
    from muster.emulator.scenario.scenario import read_scenario

    if (scenario is None) == (resume is None):
        raise ConfigError("expected a scenario, or --resume DIR; examples/ has scenarios")
    say = partial(click.echo, err=True)
    if resume is not None:
        if settings or out or data:
            raise ConfigError("--resume goes on as the run began: no --set, --out or --data")
        done = containers.up_again(resume, say=say)
    else:
        assert scenario is not None
        done = containers.up(read_scenario(scenario, settings, data), out=out, say=say)
    click.echo(containers.describe(done))


@main.command()
@_RUN
@click.option("--all", "everything", is_flag=True,
              help="All fleets in containers, wherever their folders are.")  # fmt: skip
@_failures_as_status
def down(folder: Path, everything: bool) -> None:
    """End the fleet of FOLDER (default runs/latest) and remove all it has in Docker."""
    from muster.emulator.launch.docker import down as containers
    from muster.emulator.results.summary import describe
    from muster.emulator.runs.run_folder import run_folder

    say = partial(click.echo, err=True)
    if everything:
        containers.down_all(say)
    else:
        summary = containers.down(folder, say)
        if summary is not None:
            click.echo(describe(summary, Path(shown(run_folder(folder)))))
    click.echo("nothing of it is left in Docker", err=True)


@main.command()
@_RUN
@_failures_as_status
def status(folder: Path) -> None:
    """How the run in FOLDER stands (default runs/latest)."""
    from muster.emulator.runs.control import standing

    for line in standing(folder):
        click.echo(line)


@main.command()
@_RUN
@_failures_as_status
def watch(folder: Path) -> None:
    """Follow the run in FOLDER until it ends, one JSON object per event."""
    from muster.emulator.runs.control import events

    for line in events(folder):
        click.echo(line)


@main.command()
@_RUN
@_failures_as_status
def stop(folder: Path) -> None:
    """End the run in FOLDER; what is committed stays, and it can be resumed."""
    from muster.emulator.runs.control import stop

    stop(folder)
    click.echo("asked it to stop")


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path), required=False)
@_DATA
@_failures_as_status
def doctor(scenario: Path | None, data: str | None) -> None:
    """Look at what this machine can carry: for SCENARIO, or for 10 devices."""
    from muster.emulator.runs.doctor import FleetSize, examine
    from muster.emulator.scenario.scenario import DATA_VARIABLE, read_scenario

    fleet, directory = FleetSize(), data or os.environ.get(DATA_VARIABLE)
    problem = ""
    if scenario is not None:
        read = read_scenario(scenario, (), data)
        fleet, directory = FleetSize.of(read), read.task.data.directory
        try:
            read.task.check()
        except ConfigError as error:
            problem = str(error)
    findings = examine(fleet, Path(directory) if directory else None)
    for finding in findings:
        mark = "ok " if finding.enough else "NO "
        click.echo(f"{mark} {finding.subject}: {finding.found}")
        if not finding.enough:
            click.echo(f"     {finding.advice}")
    if problem:
        click.echo(f"NO  data: {problem}")
    if problem or not all(finding.enough for finding in findings):
        sys.exit(1)


@main.command()
@_RUN
@_failures_as_status
def report(folder: Path) -> None:
    """Write FOLDER's figures and report.html anew."""
    from muster.emulator.results.report import write_report
    from muster.emulator.runs.run_folder import run_folder

    run = run_folder(folder)
    with refusal_of(f"the report of {shown(run)} cannot be written", "make the folder writable"):
        page = write_report(run)
    click.echo(shown(page))


@main.group()
def trace() -> None:
    """Availability as a file: bring in others' recordings, keep a run's own."""


@trace.command("import")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@_failures_as_status
def import_trace(source: Path, out: Path) -> None:
    """Turn FedScale's client_behave_trace SOURCE (a pickle; no code of it is run) into OUT, a .csv
    or .json for availability.kind = "trace"."""
    from muster.client.availability.traces import write_traces
    from muster.emulator.fleet.fedscale import import_fedscale

    traces = import_fedscale(source)
    with refusal_of(f"{out} cannot be written", "name another file"):
        write_traces(out, traces)
    click.echo(f"{len(traces):,} traces in {shown(out)}")


@trace.command("export")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@_failures_as_status
def export_trace(folder: Path, out: Path) -> None:
    """Write who was available in the run in FOLDER into OUT, a .csv or .json."""
    from muster.client.availability.traces import write_traces
    from muster.emulator.results.trace_export import traces_of_run
    from muster.emulator.runs.run_folder import run_folder

    traces = traces_of_run(run_folder(folder))
    with refusal_of(f"{out} cannot be written", "name another file"):
        write_traces(out, traces)
    click.echo(f"{len(traces):,} traces in {shown(out)}")


@contextmanager
def _watching(title: str, quiet: bool) -> "Iterator[Show]":
    """Show one run of several: live on a terminal, else its problems and, unless quiet, its end."""
    from muster.emulator.runs.progress import LenientProgress, progress

    few_lines = quiet or not sys.stderr.isatty()
    display = LenientProgress(progress(sys.stderr, WallClock(), title=title, quiet=few_lines))
    try:
        yield display.show
    except MusterError as error:
        click.echo(f"{title}: {error}", err=True)
        raise
    finally:
        if not quiet:  # closing it would say how the run ended, also when all is well
            display.close()


@contextmanager
def _watching_in_brief(title: str, quiet: bool) -> "Iterator[Show]":
    """As `_watching`, but where lines are written a run has one, which is said when it ended."""
    with _watching(title, quiet=quiet or not sys.stderr.isatty()) as show:
        yield show


def _say(line: str, quiet: bool) -> None:
    if not quiet:
        click.echo(line, err=True)

"""Shared by the commands: arguments, options, exit statuses, and the display of a run."""

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO, TypeVar

import click
import orjson

from muster.common.causes import outer_cause
from muster.common.clock import WallClock
from muster.common.errors import ConfigError, LedgerError, MusterError
from muster.common.files import os_reason

if TYPE_CHECKING:
    from muster.emulator.runs.supervisor import Show

P = ParamSpec("P")
T = TypeVar("T")


class NumberRange(click.FloatRange):
    """A number within bounds. NaN is within none; click alone takes it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"expected a finite number, found {value}", param, ctx)
        return number


SCENARIO = click.argument("scenario", type=click.Path(path_type=Path))
OPTIONAL_SCENARIO = click.argument("scenario", type=click.Path(path_type=Path), required=False)
RUN = click.argument("folder", type=click.Path(path_type=Path), default=Path("runs/latest"))
BACKEND = click.option(
    "--backend",
    type=click.Choice(["processes", "docker", "ray"]),
    default="processes",
    help="Where the fleet runs: processes of this machine (default), Docker containers, or the "
    "nodes of a Ray cluster.",
)


def _only_one(
    context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> str | None:
    """The value of an option that may be given once. Click alone would take the last."""
    if len(given) > 1:
        raise click.BadParameter(f"expected one, found {' and '.join(given)}; repeat the command")
    return given[0] if given else None


TRACK = click.option(
    "--track",
    "trackers",
    multiple=True,
    type=click.Choice(["mlflow", "tensorboard", "wandb"]),
    help="Record each run in this tracker while it goes on; may be repeated.",
)

FIGURES = click.option(
    "--figures",
    "kind",
    multiple=True,
    callback=_only_one,
    type=click.Choice(["png", "svg", "pdf"]),
    help="Write figures as files of this kind, for papers.",
)
DATA = click.option(
    "--data", metavar="DIR", help="The data directory; it takes precedence over MUSTER_DATA."
)
PORT = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="The port of the live page on 127.0.0.1 (default: any that is free).",
)
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON (docs/commands.md)."
)
SETTINGS = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting: --set server.rounds=5 --set groups[0].count=20.",
)


def folder_option(name: str, help: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """An option that names a folder."""
    return click.option(name, type=click.Path(path_type=Path), metavar="DIR", help=help)


def failures_as_status(command: Callable[P, T]) -> Callable[P, T]:
    """Print an error of muster without a traceback, and exit with its status: 2 if the input is
    wrong, else 1."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except (ConfigError, LedgerError) as error:
            complain(error)
            sys.exit(2)
        except MusterError as error:
            complain(error)
            sys.exit(1)
        except Exception as error:
            if isinstance(error, OSError) or not (cause := outer_cause(error)):
                raise
            complain(cause)
            sys.exit(1)

    return guarded


class Commands(click.Group):
    """A group of commands that reports an unexpected error of the operating system in one line."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            # An error about a file names the file. Without a name it is about standard output.
            what = "" if error.filename else "standard output cannot be written: "
            complain(what + os_reason(error))
            sys.exit(1)
        finally:
            _abandon(sys.stdout)
            _abandon(sys.stderr)


def complain(error: object) -> None:
    """Print an error."""
    with suppress(OSError):  # if this fails, the exit status still tells
        click.echo(f"error: {error}", err=True)


def _abandon(stream: TextIO) -> None:
    """Discard output that a stream does not take, so that Python does not try again at its end."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def require_one_source(scenario: Path | None, resume: Path | None) -> None:
    """Check that a command got a scenario or a folder to resume, and not both.

    Raises:
        ConfigError: it got both or neither.
    """
    if scenario is None and resume is None:
        raise ConfigError(
            "expected a scenario, or --resume DIR; `muster init --list` lists examples"
        )
    if scenario is not None and resume is not None:
        raise ConfigError(
            f"expected a scenario or --resume, found both; --resume DIR goes on with the scenario "
            f"that DIR has, so leave {scenario} out"
        )


@contextmanager
def watching(title: str, quiet: bool) -> "Iterator[Show]":
    """Display one run of several: live on a terminal, otherwise its problems and, unless `quiet`,
    how it ended."""
    from muster.emulator.following.progress import LenientProgress, progress

    few_lines = quiet or not sys.stderr.isatty()
    display = LenientProgress(progress(sys.stderr, WallClock(), title=title, quiet=few_lines))
    try:
        yield display.show
    except MusterError as error:
        click.echo(f"{title}: {error}", err=True)
        raise
    finally:
        if not quiet:  # close() prints how the run ended, even if it ended well
            display.close()


@contextmanager
def watching_in_brief(title: str, quiet: bool) -> "Iterator[Show]":
    """As `watching`, but without a terminal a run gets one line only, when it has ended."""
    with watching(title, quiet=quiet or not sys.stderr.isatty()) as show:
        yield show


def print_result(text: Callable[[], str], values: Callable[[], Any], as_json: bool) -> None:
    """Print the result of a command: as a text, or with `--json` as one line of JSON, in which
    numbers that are not finite are null."""
    click.echo(orjson.dumps(values(), option=orjson.OPT_SERIALIZE_NUMPY) if as_json else text())


def tell_user(line: str, quiet: bool) -> None:
    """Print a line of progress on standard error, unless `quiet`."""
    if not quiet:
        click.echo(line, err=True)

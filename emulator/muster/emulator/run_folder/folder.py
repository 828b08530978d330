"""The run folder: functions to make, find and lock it, and the compose file in it."""

import fcntl
import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import orjson

from muster.common.causes import OWN_CODE_FAILED
from muster.common.errors import ConfigError
from muster.common.files import os_reason, refusal_of, write_atomic
from muster.common.toml import parse_toml

LEDGER, JOURNAL, SCENARIO = "ledger.sqlite", "journal.jsonl", "scenario.toml"

ADDRESS = "address.json"
"""Where the server listens, and its process id; the server writes it once its port answers."""

_CONNECT_S = 1.0

PARTS = ("setup", "logs", "devices", "models")


@contextmanager
def new_run_folder(name: str, out: Path | None, scenario: str) -> Iterator[Path]:
    """Make the folder of a new run: `out`, or `runs/<name>-<time>`, to which `runs/latest` then
    points.

    If the body refuses the run with a ConfigError, the folder is removed again.

    Args:
        scenario: the resolved scenario, which is written into the folder as scenario.toml.

    Raises:
        ConfigError: `out` is not empty, or cannot be written.
    """
    folder = new_folder(name, out, "muster run")
    latest = folder.parent / "latest"
    before = os.readlink(latest) if out is None and latest.is_symlink() else None
    try:
        with making(folder, undo_on=(ConfigError, OSError)):
            for part in PARTS:
                (folder / part).mkdir(exist_ok=True)
            # setup/ gets the credentials of the run, which no other user of the machine may read.
            (folder / "setup").chmod(0o700)
            write_atomic(folder / SCENARIO, scenario.encode())
            if out is None:
                _point(latest, folder.name)
            yield folder
    except ConfigError:
        if out is None and latest.is_symlink() and not latest.exists():
            latest.unlink()
            if before is not None:
                _point(latest, before)
        raise


def new_folder(name: str, out: Path | None, command: str | None) -> Path:
    """Return the path of the folder to make: `out`, or `runs/<name>-<time>`.

    Args:
        command: the command that can resume what a folder already holds, for the message; None:
            there is none.

    Raises:
        ConfigError: `out` is not empty, or cannot be read.
    """
    if out is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = Path("runs") / f"{name}-{stamp}"
        while folder.exists():
            folder = folder.with_name(f"{name}-{stamp}-{secrets.token_hex(2)}")
        return folder
    with _writing(out):
        used = out.exists() and (not out.is_dir() or any(out.iterdir()))
    if used:
        resumed = "" if command is None else f", or resume it with {command} --resume {out}"
        raise ConfigError(
            f"--out {out} exists and is not an empty folder; name another folder{resumed}"
        )
    return out


@contextmanager
def making(
    folder: Path, undo_on: type[BaseException] | tuple[type[BaseException], ...] = BaseException
) -> Iterator[None]:
    """Make `folder` if it is missing. If the body fails, remove everything that was made.

    Args:
        undo_on: the failures after which everything is removed.

    Raises:
        ConfigError: the folder cannot be made, or no file can be written in it.
    """
    with _writing(folder):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        before = set() if missing else set(folder.iterdir())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
            yield
        except undo_on:
            made = missing[-1:] or [path for path in folder.iterdir() if path not in before]
            for path in made:
                _remove(path)
            raise


def _writing(folder: Path) -> AbstractContextManager[None]:
    return refusal_of(f"{folder} cannot be written", "name another folder with --out")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _point(link: Path, target: str) -> None:
    """Make the symbolic link `link` point to `target`."""
    new = link.with_name(f".{link.name}-{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    try:
        os.replace(new, link)
    except OSError:
        new.unlink()
        raise


def run_folder(path: Path) -> Path:
    """The run folder at `path`, as an absolute path.

    Raises:
        ConfigError: there is no run folder.
    """
    if not (path / SCENARIO).is_file():
        raise ConfigError(
            f"{path} is not a run folder: it has no scenario.toml. `muster run` makes run folders "
            f"under runs/, and runs/latest is the newest"
        )
    return path.resolve()


def afresh(folder: Path) -> str:
    """Advice for messages: how to run a folder's scenario again from the beginning."""
    where = "--swarm --out OTHER" if is_stack(folder) else "--out OTHER"
    again = f"muster {_beginner(folder)} {folder / SCENARIO} {where}"
    return f"run it again from the beginning: {again}"


def _beginner(folder: Path) -> str:
    """The command that began the run in a folder."""
    return "up" if (folder / COMPOSE).is_file() else "run"


DETACHED_LOG = "logs/supervisor.log"
"""What the supervisor of `muster up` says."""


def has_detached_supervisor(folder: Path) -> bool:
    """Whether a supervisor that `muster up` has started is at work in a folder."""
    return (folder / DETACHED_LOG).is_file() and not is_free(folder)


def resume_command(folder: Path) -> str:
    """The command that resumes the run in a folder, for messages."""
    return f"muster {_beginner(folder)} --resume {folder}"


def resume_advice(folder: Path, why: str) -> str:
    """How to resume the run in a folder, as a further line of a message. Without a ledger there is
    nothing to resume, and what failed would fail again: then it is an advice to run it again. So it
    is if code of the user's own failed, because a resumed run goes on with the code it began with.

    Args:
        why: the reason why the run ended.
    """
    if OWN_CODE_FAILED in why:
        return f"\nMend it, and {afresh(folder)}"
    if not (folder / LEDGER).is_file():
        return f"\nNothing has been trained. Mend the cause, and {afresh(folder)}"
    mended = f"\nIf you change code of your own, {afresh(folder)}" if _has_own_code(folder) else ""
    return f"\nResume the run with: {resume_command(folder)}{mended}"


def _has_own_code(folder: Path) -> bool:
    try:
        return "modules" in parse_toml((folder / SCENARIO).read_text(encoding="utf-8"), SCENARIO)
    except (OSError, ValueError):
        return False


def read_values(folder: Path, name: str, kinds: Mapping[str, type], advice: str) -> dict[str, Any]:
    """Read a JSON file of a run folder.

    Args:
        kinds: the keys that the file must have, and the types of their values.
        advice: what to do if the file is wrong, for the message.

    Raises:
        ConfigError: the file cannot be read, or lacks these keys and types.
        FileNotFoundError: there is no such file.
    """
    try:
        values = orjson.loads((folder / name).read_bytes())
        if all(isinstance(values[key], kind) for key, kind in kinds.items()):
            return dict(values)
        found = "other values"
    except FileNotFoundError:
        raise
    except OSError as error:
        found = os_reason(error)
    except (ValueError, TypeError, LookupError) as error:
        found = f"{type(error).__name__}: {error}"
    raise ConfigError(
        f"{folder}/{name}: expected JSON with {', '.join(kinds)}, found {found}; {advice}"
    )


def shown(path: Path) -> str:
    """A path as a person would type it in the current directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def own(folder: Path) -> IO[str]:
    """Lock the folder for this process, until the returned file is closed.

    Raises:
        ConfigError: another process has locked it, or it has no `setup/` that can be written.
    """
    setup = folder / "setup"
    with refusal_of(f"{setup}: expected the folder that the run made", afresh(folder)):
        lock = open(setup / "lock", "a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigError(
            f"another muster process is running in {folder}; `muster status {folder}` shows it, "
            f"`muster stop {folder}` ends it"
        ) from None
    return lock


def is_free(folder: Path) -> bool:
    """Whether no process has locked the folder, so that its run has ended or was killed."""
    try:
        with open(folder / "setup" / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # nobody has locked it yet
        return True
    return True


def server_listens(folder: Path) -> bool:
    """Whether the port of the run's server is open. True also as long as its address is not known,
    because the server has not been started."""
    try:
        address = read_values(folder, ADDRESS, {"host": str, "port": int}, "")
    except (OSError, ConfigError):
        return True
    try:
        socket.create_connection((address["host"], address["port"]), _CONNECT_S).close()
    except OSError:
        return False
    return True


COMPOSE: Final = "docker-compose.yml"
"""The compose file in the run folder of a fleet that `muster up` started."""

SWARM: Final = "x-swarm"
"""The section that marks the compose file of a swarm."""


def is_stack(folder: Path) -> bool:
    """Whether the fleet of a run folder runs in a swarm, beside which no supervisor stays."""
    file = folder / COMPOSE
    if not file.is_file():
        return False
    with file.open() as lines:
        return any(line.startswith(SWARM) for line in lines)

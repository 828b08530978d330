"""The run folder: making it, finding it, owning it."""

import fcntl
import os
import secrets
from datetime import datetime
from pathlib import Path
from typing import IO

from muster.common.errors import ConfigError

_PARTS = ("setup", "logs", "devices", "models", "figures")


def make_run_folder(name: str, out: Path | None) -> Path:
    """Make the folder of a new run: `out`, or `runs/<name>-<time>` with `runs/latest` beside it.

    Raises:
        ConfigError: `out` holds something already.
    """
    if out is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        folder = Path("runs") / f"{name}-{stamp}"
        while folder.exists():
            folder = folder.with_name(f"{name}-{stamp}-{secrets.token_hex(2)}")
    else:
        folder = out
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(
                f"--out {folder} exists and is not an empty folder; name another, or go on with "
                f"it by --resume {folder}"
            )
    for part in _PARTS:
        (folder / part).mkdir(parents=True, exist_ok=True)
    # Tokens lie in setup/: nobody else on the machine may read them.
    (folder / "setup").chmod(0o700)
    if out is None:
        _point_latest(folder)
    return folder


def _point_latest(folder: Path) -> None:
    latest = folder.parent / "latest"
    new = folder.parent / f".latest-{os.getpid()}"
    new.unlink(missing_ok=True)
    new.symlink_to(folder.name)
    os.replace(new, latest)


def run_folder(path: Path) -> Path:
    """The run folder at `path`.

    Raises:
        ConfigError: there is none.
    """
    if not (path / "scenario.toml").is_file():
        raise ConfigError(
            f"{path} is not a run folder: it has no scenario.toml. `muster run` makes them under "
            f"runs/, and runs/latest is the newest"
        )
    return path.resolve()


def shown(path: Path) -> str:
    """A path as a person would type it here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def own(folder: Path) -> IO[str]:
    """Lock the folder for this process, until the returned file is closed.

    Raises:
        ConfigError: another process runs in it.
    """
    lock = open(folder / "setup/lock", "a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigError(
            f"another muster is running in {folder}; `muster status {folder}` shows it, "
            f"`muster stop {folder}` ends it"
        ) from None
    return lock

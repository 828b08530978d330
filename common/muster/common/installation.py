"""The name and version of this distribution, and how its extras are installed."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "muster-fl"
"""The name of the distribution; `muster` on the package index is somebody else's."""

VERSION = "0.1.0"

_CLONE = Path(__file__).resolve().parents[3]


def install_command(extra: str, clone: Path = _CLONE, wheel: str | None = None) -> str:
    """The command that adds an extra to this installation.

    Args:
        clone: the folder above this module's source root; it is a clone if it has muster's
            pyproject.toml.
        wheel: the file that was installed, if this is no clone; None: what pip has noted.
    """
    if _is_ours(clone / "pyproject.toml"):
        return f"{_pip()} install -e {shlex.quote(f'{_relative(clone)}[{extra}]')}"
    return f"{_pip()} install {shlex.quote(f'{wheel or _wheel()}[{extra}]')}"


def _is_ours(project: Path) -> bool:
    return project.is_file() and f'name = "{NAME}"' in project.read_text().splitlines()


def _relative(folder: Path) -> str:
    return "." if folder == Path.cwd() else str(folder)


def _pip() -> str:
    python = Path(sys.executable)
    inside = python.is_relative_to(Path.cwd())
    return f"{python.relative_to(Path.cwd()) if inside else python} -m pip"


def _wheel() -> str:
    """The path of the wheel that pip installed, or how such a file is called."""
    try:
        noted = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        noted = {}
    path = unquote(urlsplit(noted.get("url", "")).path)
    return path or f"{NAME.replace('-', '_')}-{VERSION}-py3-none-any.whl"

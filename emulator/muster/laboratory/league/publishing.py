"""Copies the table of a league to the pages of the project: `make league`.

The page names the commit, the machine and its fingerprint.
"""

import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from muster.common.errors import ConfigError
from muster.common.files import write_atomic
from muster.laboratory.league.page import CELLS, markdown_of
from muster.laboratory.league.plan import SCENARIOS
from muster.laboratory.league.playing import resume_league

_ROOT = Path(__file__).parents[4]

_FINGERPRINT = re.compile(r"^Fingerprint: `(.*)`$", re.MULTILINE)


def publish(folder: Path, page: Path) -> None:
    """Write the tables of the league in `folder` to `page`, and the models of its runs beside it.

    Raises:
        ConfigError: the league has not ended.
    """
    done = resume_league(folder)
    if done.status == "stopped":
        raise ConfigError(f"{folder}: the league has not ended; resume it first")
    made = (
        f"Played at commit {_commit()} on {_machine()}, Python {platform.python_version()}.\n\n"
        f"Fingerprint: `{json.dumps(done.fingerprint, sort_keys=True)}`"
    )
    above = Path(*[".."] * len(page.resolve().relative_to(_ROOT).parent.parts))
    scenarios = above / SCENARIOS.relative_to(_ROOT)
    text = markdown_of(done, lambda name: str(scenarios / f"{name}.toml"), made)
    write_atomic(page, text.encode())
    write_atomic(page.with_suffix(".csv"), (folder / CELLS).read_bytes())


def fingerprint_in(page: Path) -> Any:
    """The fingerprint that a published page names; None: it names none."""
    found = _FINGERPRINT.search(page.read_text(encoding="utf-8"))
    return json.loads(found[1]) if found else None


def _commit() -> str:
    asked = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0] if names else platform.machine()}"


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]))

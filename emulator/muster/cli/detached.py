"""Supervises the run of a folder without a terminal, until the run ends: `muster up` starts this
program and leaves it running.

It has the rights of the user who started the fleet, and no more. A supervisor in a container would
need the socket of the Docker daemon to restart containers, and so the power of root.
"""

import sys
from pathlib import Path

from muster.cli.options import failures_as_status
from muster.emulator.runs.running import resume


@failures_as_status
def main(folder: Path) -> None:
    """Run or resume the run in a folder, with containers from its compose file."""
    resume(folder, backend="compose")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""`python -m muster.chaos.one_run FOLDER [SCENARIO]`: one run without a report.

With a scenario, the run is begun in the folder, as `muster run SCENARIO --out FOLDER` does;
without, it is resumed, as `muster run --resume FOLDER` does.
"""

import sys

from muster.common.errors import MusterError
from muster.emulator.runs.running import resume, run


def main(folder: str, scenario: str | None = None) -> int:
    """Return the exit status: 0 if the run came to its end, 1 with a message otherwise."""
    try:
        if scenario is None:
            resume(folder, report=False)
        else:
            run(scenario, out=folder, report=False)
    except MusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The program of a worker, `python -m muster.simulation.worker_program`: runs one scenario after
another.

An order is a line of JSON on standard input with `folder`, `scenario` and `backend`, or
`workers.IN_MEMORY` in place of a backend. The answer is a line of JSON on standard output with
`status`, and `problem` if the run has no result. SIGINT stops the current run and ends the worker.
One program does many runs, because pandas takes a second to import.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

from muster.common.errors import MusterError
from muster.common.garbage import keep_what_is_left
from muster.emulator.comparison.run_set import asked_to_stop, run_or_resume
from muster.emulator.scenario.reading import settled
from muster.simulation.workers import IN_MEMORY


def main() -> None:
    try:
        for line in sys.stdin:
            sys.stdout.write(json.dumps(run_order(json.loads(line))) + "\n")
            sys.stdout.flush()
            keep_what_is_left()
    except KeyboardInterrupt:
        pass  # it came between two runs, so no answer is due


def run_order(order: dict[str, Any]) -> dict[str, str]:
    """Run the scenario of an order and return the answer."""
    folder = Path(order["folder"])
    try:
        scenario = settled(order["scenario"], str(folder))
        if order["backend"] == IN_MEMORY:
            from muster.simulation.whole_run import simulate_run

            # Nothing has to end in an orderly way, because such a run is played from its beginning.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            status = simulate_run(scenario, folder)
        else:
            status = run_or_resume(folder, scenario, backend=order["backend"], report=False)
        return {"status": status, "problem": ""}
    except MusterError as error:
        return {"status": "stopped" if asked_to_stop(error) else "failed", "problem": str(error)}


if __name__ == "__main__":
    main()

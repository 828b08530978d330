"""The program `python -m tests.simulation.reaching`: plays histories that reach rare probes.

It prints a line of JSON: by the name of each probe, whether its history has reached it, and what
the history has violated. It is a program of its own, because probes are installed before the
modules of the product are loaded.
"""

import json
import sys

from muster.simulation.faults import Kill, KillAt, Pause, RevokeAt, Rogue, ShortMessages
from muster.simulation.probes import install


def main() -> None:
    install()
    from muster.simulation.search import HistoryPlan, simulator

    plans = {
        "another attempt had been accepted": HistoryPlan("inline", 0, (Rogue("forged"),)),
        "a part of the model was asked for after its round": HistoryPlan(
            "slices", 0, (Rogue("forged"),)
        ),
        "a sum was wanted of a process that was gone": HistoryPlan(
            "partial-sums-of-absent",
            0,
            (ShortMessages(1), RevokeAt(KillAt("dev-0000..dev-0002", "received", 3))),
        ),
        "an update was dropped: sum missing": HistoryPlan(
            "partial-sums", 2, (RevokeAt(KillAt("dev-0000..dev-0001", "received", 1)),)
        ),
        "an update was missing in a sum": HistoryPlan(
            "partial-sums-of-absent",
            2,
            (ShortMessages(1), KillAt("dev-0000..dev-0002", "received", 3)),
        ),
        "the rest of a request for a sum came without its beginning": HistoryPlan(
            "busy-partial-sums", 1, (ShortMessages(1),)
        ),
        "a version was made after the evaluation process had died": HistoryPlan(
            "inline", 0, (Pause("server", 65, 5.0), Kill("evaluation", 6))
        ),
    }
    found = {}
    with simulator() as simulated:
        for name, plan in plans.items():
            outcome = simulated.play(plan)
            found[name] = [name in outcome.reached, outcome.violations]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()

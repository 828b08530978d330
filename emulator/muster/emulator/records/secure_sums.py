"""What is said of secure sums, from the events of the journal."""

from collections.abc import Mapping
from typing import Any

STEPS: Mapping[str, str] = {
    "keys": "keys",
    "shares": "shares",
    "update": "padded updates",
    "opening": "openings",
}
"""What devices send in each step, in the order of the steps."""


def failure_text(event: Mapping[str, Any]) -> str:
    """Why a round has no secure sum, from its event `secure_sum_failed`."""
    answered, needed, members = event["answered"], event["needed"], event["members"]
    if event["step"] is None:
        return f"{answered} devices have an update; a secure sum needs {needed}"
    if answered >= needed:
        return f"the shares of {answered} devices open no sum"
    sent = STEPS.get(event["step"], "answers")
    return f"the {sent} of {answered} of {members} devices came; {needed} are needed"


def steps_text(steps: Mapping[str, tuple[int | None, int]]) -> str:
    """How far a secure sum is; empty if none is under way.

    Args:
        steps: see `muster.emulator.following.run_progress.RunProgress.secure`.
    """
    said = [
        f"the {STEPS.get(step, step)} of "
        + (f"{asked} devices are awaited" if took is None else f"{took} of {asked} have come")
        for step, (took, asked) in steps.items()
    ]
    return ", ".join(said)

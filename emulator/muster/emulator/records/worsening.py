"""Whether a run ended far worse than it began: one judgement for the terminal, the summary and the
report, whatever the rule."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.emulator.records.parts import finite

if TYPE_CHECKING:
    import pandas as pd

LEARNED = 0.1
"""A difference of the accuracy that is more than chance."""


def worsening_of(evaluations: "pd.DataFrame") -> dict[str, Any] | None:
    """The loss and the accuracy of the initial and of the newest model, if the newest is far worse;
    else None.

    It is if its loss is more than twice that of the initial model, or not finite, and its accuracy
    is not higher by more than `LEARNED`; or if its accuracy is less than half, and lower by more
    than that. Without an evaluation of the initial model nothing is known.
    """
    if len(evaluations) < 2 or evaluations["version"].iloc[0] != 0:
        return None
    first, last = evaluations.iloc[0], evaluations.iloc[-1]
    gained = float(last["accuracy"] - first["accuracy"])  # NaN if the task has none
    rose = not float(last["loss"] - first["loss"]) <= abs(first["loss"])
    rose = rose and math.isfinite(first["loss"]) and not gained > LEARNED
    fell = gained < -LEARNED and last["accuracy"] < first["accuracy"] / 2
    if not (rose or fell):
        return None
    pairs = {name: (float(first[name]), float(last[name])) for name in ("loss", "accuracy")}
    known = {name: pair for name, pair in pairs.items() if math.isfinite(pair[0])}
    return {name: {"initial": a, "final": finite(b)} for name, (a, b) in known.items()}


def worsening_text(worse: Mapping[str, Mapping[str, float | None]]) -> str:
    """For example "the model ends far worse than it began: loss 2.352, at the end 1.8e+11"."""
    told = [f"{name} {_number(of['initial'])}, at the end {_number(of['final'])}"
            for name, of in worse.items()]  # fmt: skip
    return f"the model ends far worse than it began: {'; '.join(told)}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"

"""Whether the model of a run became far worse than it was: one judgement for the terminal, the
summary, the report and the live page, whatever the rule."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.emulator.records.parts import finite

if TYPE_CHECKING:
    import pandas as pd

LEARNED = 0.1
"""A difference of the accuracy that is more than chance."""


class Quality(NamedTuple):
    """What an evaluation measured; an accuracy of NaN: the task has none."""

    loss: float
    accuracy: float


def worsening_of(evaluations: "pd.DataFrame") -> dict[str, Any] | None:
    """`worsening` from the initial to the newest model; None without an evaluation of both."""
    if len(evaluations) < 2 or evaluations["version"].iloc[0] != 0:
        return None
    measured = evaluations[list(Quality._fields)].astype(float).iloc[[0, -1]]
    first, last = measured.itertuples(index=False)
    return worsening(Quality(*first), Quality(*last))


def worsening(first: Quality, last: Quality) -> dict[str, Any] | None:
    """The loss and the accuracy of the initial and of a later model, if that is far worse.

    It is if its loss is more than twice that of the initial model, or not finite, and its accuracy
    is not higher by more than `LEARNED`; or if its accuracy is less than half, and lower by more
    than that.
    """
    gained = last.accuracy - first.accuracy
    rose = not last.loss - first.loss <= abs(first.loss)
    rose = rose and math.isfinite(first.loss) and not gained > LEARNED
    fell = gained < -LEARNED and last.accuracy < first.accuracy / 2
    if not (rose or fell):
        return None
    pairs = {name: (getattr(first, name), getattr(last, name)) for name in Quality._fields}
    known = {name: pair for name, pair in pairs.items() if math.isfinite(pair[0])}
    return {name: {"initial": a, "final": finite(b)} for name, (a, b) in known.items()}


def worsening_text(worse: Mapping[str, Mapping[str, float | None]]) -> str:
    """For example "the model is far worse than the initial one: loss 2.352, now 1.8e+11"."""
    told = [f"{name} {_number(of['initial'])}, now {_number(of['final'])}"
            for name, of in worse.items()]  # fmt: skip
    return f"the model is far worse than the initial one: {'; '.join(told)}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"

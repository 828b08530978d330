"""Shows a worst case as text and as values."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from muster.emulator.records.summary import clean, percent_text
from muster.emulator.records.tabular import aligned
from muster.laboratory.worst_case.finding import WorstCase


def describe(found: WorstCase) -> str:
    """Describe a worst case in lines."""
    mean = f"{found.random_mean:.4g} ± {found.random_half:.2g}"
    ratio = (
        "–: the mean of random schedules is not clearly above 0"
        if math.isnan(found.ratio)
        else f"{found.ratio:.3g}"
    )
    rows = [
        ["rule", clean(found.rule)],
        ["budget", f"{percent_text(found.budget)} of the device-rounds: {found.limit:,}"],
        [
            found.against,
            f"{found.without:.4g} without a schedule, {found.worst:.4g} with the worst",
        ],
        ["harm", f"{found.harm:.4g}; the worst that was played did {found.searched_harm:.4g}"],
        [f"family {found.family}", f"at most {found.family_harm:.4g}"],
        ["random", f"{mean} on average, at most {found.random_max:.4g}"],
        ["worst ÷ random", ratio],
        ["played", f"{found.runs:,} schedules"],
        ["schedule", f"{clean(found.words)} (device-rounds: {found.struck:,})"],
        ["model", found.model_sha256],
    ]
    return "\n".join(aligned(rows))


def numbers_of(found: WorstCase) -> Mapping[str, Any]:
    """The result as values for programs; docs/commands.md explains every key."""
    return dataclasses.asdict(found) | {"ratio": found.ratio}

"""The facts of a round that an expectation may be about."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class FactKind(NamedTuple):
    """What a fact means, and of whom it is known.

    Attributes:
        meaning: a sentence about its value in a round.
        of_group: whether a condition may, must or cannot name a group.
    """

    meaning: str
    of_group: Literal["may", "always", "never"] = "may"


METRIC = "metric"
"""The fact whose first name is that of a metric of the task: `metric("f1", "phones")`."""

FACTS: Mapping[str, FactKind] = MappingProxyType(
    {
        "loss": FactKind(
            "loss of the model after the round, on the test set or on the data of a group"
        ),
        "accuracy": FactKind("accuracy of the same model, on the same data"),
        METRIC: FactKind(
            "another metric that the task measures of the same model, by its name; of a group: "
            '`metric("f1", "phones")`'
        ),
        "participation": FactKind(
            "folded updates divided by enrolled devices (devices that ever connected)"
        ),
        "call_success": FactKind("folded updates divided by called devices"),
        "share": FactKind("the group's share of the folded updates", "always"),
        "called": FactKind("devices that the round called"),
        "accepted": FactKind("devices that accepted the call, also if they gave up later"),
        "folded": FactKind("updates that became part of the model in the round"),
        "lost": FactKind("accepted calls of the round that never led to a folded update"),
        "late": FactKind("updates that came too late or were too stale"),
        "refused": FactKind("updates in which something was wrong"),
        "dropped": FactKind("accepted calls that ended without an update that was needed"),
        "duplicate": FactKind("updates that arrived again; they do not count again"),
        "counted_twice": FactKind("calls of the round whose update was folded more than once"),
        "mean_staleness": FactKind("mean staleness of the folded updates"),
        "max_staleness": FactKind("largest staleness of the folded updates"),
        "bytes_up": FactKind("bytes of bodies that came from devices", "never"),
        "bytes_down": FactKind("bytes of bodies that were sent to devices", "never"),
        "bytes": FactKind("the sum of both", "never"),
        "energy": FactKind("joules of the calls of the round, with `[energy]`"),
        "wasted_energy": FactKind("joules of its calls without a folded update"),
        "co2e": FactKind("grams of CO₂ equivalent of its calls, with `energy.intensity`"),
        "empty": FactKind("1 if the round left the model as it was, else 0", "never"),
        "seconds": FactKind("wall seconds from the opening of the round to its close", "never"),
    }
)
"""The facts by name, as docs/expectations.md lists them."""


def example_of(name: str) -> str:
    """A fact as conditions write it, with the names that it must have."""
    if name == METRIC:
        return f'{name}("f1")'
    return f'{name}("phones")' if FACTS[name].of_group == "always" else name


EVALUATED = frozenset({"loss", "accuracy", METRIC})
"""The facts that exist only in rounds after which the model was evaluated."""

ENERGY, CARBON = frozenset({"energy", "wasted_energy"}), "co2e"
"""The facts that exist only with `[energy]`, and with its intensity."""

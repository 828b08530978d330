"""The facts that devices report with an update, besides its examples, loss and steps.

A fact is declared here only, as a field of `Facts`; `Update` of fleet.proto has an optional field
of the same name. How it is encoded, remembered by the device, checked on arrival, stored in the
table `contributions` of the ledger and documented follows from the declaration.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple, get_args, get_type_hints

from muster.common.bounds import MOST_EXAMPLES

LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127


class Reported(NamedTuple):
    """What a fact's name does not say.

    Attributes:
        least, most: its bounds. An update without the fact, or with one out of its bounds, is
            refused if the aggregator needs the fact.
        reason: the `muster.common.exchange.Reason` that such a receipt gives.
        since: the first version of the ledger's schema that has the fact.
    """

    least: float
    most: float
    reason: str = "malformed"
    since: int = 0

    def allows(self, value: float | None) -> bool:
        """Whether an aggregator can use a value."""
        return value is not None and self.least <= value <= self.most

    def up_to(self, most: float) -> "Reported":
        """The same with a largest value of at most this."""
        return self._replace(most=min(self.most, most))


class Facts(NamedTuple):
    """What a device measured for an update; None: it did not.

    Attributes:
        initial_loss: loss of the received model over the device's examples, before training; NULL
            if the device was not asked for it.
        received_examples: number of the device's own examples on which it evaluated the received
            model before training: its validation examples or, if it has none, its training
            examples; NULL if it was not asked to.
        received_loss, received_accuracy: the loss and accuracy there, with the device's own local
            entries; accuracy is NULL if the task has none.
    """

    # Devices compute losses in float32.
    initial_loss: Annotated[float | None, Reported(0.0, LARGEST_FLOAT32, "loss")] = None
    received_examples: Annotated[float | None, Reported(1, MOST_EXAMPLES, since=15)] = None
    received_loss: Annotated[
        float | None, Reported(-LARGEST_FLOAT32, LARGEST_FLOAT32, since=15)
    ] = None
    received_accuracy: Annotated[
        float | None, Reported(-LARGEST_FLOAT32, LARGEST_FLOAT32, since=15)
    ] = None


NO_FACTS = Facts()

FACTS: Mapping[str, Reported] = {
    name: get_args(hint)[1] for name, hint in get_type_hints(Facts, include_extras=True).items()
}
"""What is said of each fact, by name."""

LOSSES = frozenset(name for name, said in FACTS.items() if said.reason == "loss")
"""The facts that are losses."""

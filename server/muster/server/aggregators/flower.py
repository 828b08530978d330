"""The strategy of a Flower app in place of a rule (docs/flower.md)."""

from collections.abc import Iterator
from typing import ClassVar

from muster.server.aggregators.contract import Aggregator, Change
from muster.server.aggregators.facts import Conditions


class FlowerStrategy(Aggregator):
    """The strategy of the scenario's Flower app makes every version, in a process of its own. It
    also decides which devices a round calls, and what they are told."""

    change: ClassVar[Change] = "strategy"

    def refusals(self, conditions: Conditions) -> Iterator[str]:
        yield from super().refusals(conditions)
        if not conditions.has_strategy:
            yield (
                f"{self.kind!r} runs the strategy of a Flower app, but the task has none; set "
                f"task.name = 'flower', or take a rule of muster"
            )
        if conditions.selection != "all":
            yield (
                f"with {self.kind!r} the strategy of the app chooses the devices of a round, but "
                f"server.selection is {conditions.selection!r}; leave it out"
            )
        if conditions.carries:
            yield (
                f"with {self.kind!r} the strategy waits for the replies of a round, so an update "
                f"cannot count in a later one; take server.mode = 'synchronous'"
            )
        if conditions.least > 1:
            yield (
                f"with {self.kind!r} the strategy decides how many replies it needs, but "
                f"server.minimum = {conditions.least}; leave it out"
            )

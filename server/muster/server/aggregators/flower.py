"""The strategy of a Flower app in place of a rule (docs/flower.md)."""

from muster.server.aggregators.bases import Strategy


class FlowerStrategy(Strategy):
    """The strategy of the scenario's Flower app makes every version, in a process of its own. It
    also decides which devices a round calls, and what they are told."""

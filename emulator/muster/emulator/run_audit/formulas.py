"""The weights of the built-in rules whose weights follow from the ledger, by their formulas.

The formulas are those of docs/aggregators.md, written down again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from muster.emulator.run_audit.evidence import Row

_CONSTANT = {"kind": "constant"}


class WeighedRound(NamedTuple):
    """The weights of a round by formula.

    Attributes:
        weights: one for each folded update, in their order.
        normaliser: the divisor of the weighted sum.
    """

    weights: Sequence[float]
    normaliser: float


@dataclass
class RoundContext:
    """What the formulas of a run know.

    Attributes:
        settings: the settings of the aggregator.
        mode: the settings of the mode.
        enrolled: the devices that may train.
        heard: the devices that have taken part in a round so far.
        shares: for each device, the sum of 1/|S| over the rounds S in which it took part.
    """

    settings: Mapping[str, Any]
    mode: Mapping[str, Any]
    enrolled: Sequence[str]
    heard: set[str] = field(default_factory=set)
    shares: dict[str, float] = field(default_factory=dict)

    def discount(self, row: Row) -> float:
        """The factor by which the mode lets the weight of an update fall (docs/modes.md)."""
        found = self.mode.get("staleness_weight", _CONSTANT)
        function = found if isinstance(found, Mapping) else {"kind": found}
        staleness = int(row["staleness"])
        if function["kind"] == "polynomial":
            return float((1 + staleness) ** -float(function["exponent"]))
        if function["kind"] == "threshold":
            over = max(0, staleness - int(function["limit"]))
            return 1.0 / (1.0 + float(function["slope"]) * over)
        return 1.0


Formula = Callable[[RoundContext, Sequence[Row]], WeighedRound]
"""Takes the folded updates of a round in the order of their clients."""


def _by_examples(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    weights = [float(row["examples"]) * context.discount(row) for row in rows]
    return WeighedRound(weights, math.fsum(weights))


def _alike(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    weights = [context.discount(row) for row in rows]
    return WeighedRound(weights, math.fsum(weights))


def _ones(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    return WeighedRound([1.0] * len(rows), float(len(rows)))


def _fedbuff(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    return WeighedRound(_alike(context, rows).weights, len(rows) / context.settings["rate"])


def _fedasync(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    return WeighedRound(_alike(context, rows).weights, len(rows) / context.settings["alpha"])


def _fedvarp(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    return WeighedRound([1.0] * len(rows), len(rows) / context.settings["rate"])


def _mifa(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    context.heard.update(row["client"] for row in rows)
    waits = context.settings["start"] == "wait" and len(context.heard) < len(context.enrolled)
    weights = [0.0 if waits else 1.0] * len(rows)
    return WeighedRound(weights, len(context.enrolled) / context.settings["rate"])


def _importance(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    for row in rows:
        share = context.shares.get(row["client"], 0.0)
        context.shares[row["client"]] = share + 1 / len(rows)
    devices, least = len(context.enrolled), float(context.settings["delta"])
    shares = (context.shares[row["client"]] / row["round"] for row in rows)
    return WeighedRound([1 / (devices * max(share, least)) for share in shares], float(len(rows)))


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "fedavg": _by_examples,
        "fedplt": _by_examples,
        "fedavgm": _by_examples,
        "fedadagrad": _by_examples,
        "fedadam": _by_examples,
        "fedyogi": _by_examples,
        "agnostic": _alike,
        "fedbuff": _fedbuff,
        "fedasync": _fedasync,
        "fedvarp": _fedvarp,
        "mifa": _mifa,
        "median": _ones,
        "scaffold": _ones,
        "trimmed-mean": _ones,
        "importance": _importance,
    }
)
"""The formulas by the names of the rules."""


def no_formula(settings: Mapping[str, Any], privacy: bool) -> str | None:
    """Why the weights of a rule cannot be derived again; None if they can.

    Args:
        settings: the settings of the aggregator.
        privacy: whether the server clips updates.
    """
    kind = settings["kind"]
    if privacy:
        return "with server.privacy they follow from the norms of updates, which are not kept"
    if kind == "importance" and settings.get("shares") == "exact":
        return "with shares = 'exact' they follow from what the emulator knows"
    if kind not in FORMULAS:
        return f"the weights of {kind!r} follow from more than the ledger has, or are its own"
    return None

"""A round between its close and its commit."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from muster.common.tensors import Vector
from muster.server.aggregators import State
from muster.server.ledger import AnswerRow, Notes, RoundRow
from muster.server.rounds import Round


class Closed(NamedTuple):
    """A round that is over, and not yet in the ledger.

    Attributes:
        model: the version it made; None for an empty round.
        state: the aggregator's after it.
        traffic: bytes of its updates.
    """

    round: Round
    row: RoundRow
    answers: list[AnswerRow]
    notes: Notes
    model: Vector | None
    state: State
    traffic: Mapping[str, int]

    def told(self) -> dict[str, Any]:
        """What the journal says of it once it is committed."""
        row = self.row
        return {
            "round": row.round,
            "version": row.version,
            "outcome": row.outcome,
            "called": row.called,
            "accepted": row.accepted,
            "folded": row.folded,
            **self.traffic,
            "seconds": row.seconds,
        }


def weighting(weights: Sequence[float], normaliser: float) -> dict[str, float | None]:
    """What the ledger says of a round's weights; nothing of an empty round's."""
    names = ("normaliser", "weight_sum", "weight_max", "effective_size")
    if not weights:
        return dict.fromkeys(names)
    total = math.fsum(weights)
    squares = math.fsum(weight * weight for weight in weights)
    effective_size = total**2 / squares if squares else 0.0
    return dict(zip(names, (normaliser, total, max(weights), effective_size), strict=True))

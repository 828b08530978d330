"""A round between its close and its commit."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from muster.common.tensors import Vector
from muster.server.account.rows import RoundRow
from muster.server.aggregators import State
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates


class ClosedRound(NamedTuple):
    """A round that has closed and is not yet in the ledger.

    Attributes:
        folded: the updates that count; empty for an empty round.
        version: the number of the newest version of the model after the round.
        model: the model that the round made; None for an empty round.
        state: the aggregator's state after the round.
        next_s: in lockstep, scenario seconds at which the next round opens.
        opened_at, closed_at: UNIX seconds.
        seconds: from the opening to the close, on the monotonic clock.
        epsilon: ε of differential privacy spent up to this round; None without noise.
    """

    updates: RoundUpdates
    folded: Sequence[PendingUpdate]
    weights: Sequence[float]
    normaliser: float
    version: int
    model: Vector | None
    state: State
    next_s: float | None
    opened_at: float
    closed_at: float
    seconds: float
    epsilon: float | None = None

    def row(self, bytes_up: int, bytes_down: int) -> RoundRow:
        """The round's row in the ledger.

        Args:
            bytes_up: bytes of the bodies that arrived since the round before was committed.
            bytes_down: bytes of the bodies that were sent since then.
        """
        round = self.updates.round
        return RoundRow(
            round=round.number,
            base_version=round.base_version,
            version=self.version,
            outcome="empty" if self.model is None else "aggregated",
            called=round.called(),
            accepted=round.accepted(),
            folded=len(self.folded),
            **_weight_columns(self.weights if self.folded else (), self.normaliser),
            scenario_s=round.scenario_s,
            next_s=self.next_s,
            loss=None,
            accuracy=None,
            bytes_up=bytes_up,
            bytes_down=bytes_down,
            opened_at=self.opened_at,
            closed_at=self.closed_at,
            seconds=self.seconds,
            epsilon=self.epsilon,
        )


def _weight_columns(weights: Sequence[float], normaliser: float) -> dict[str, Any]:
    """The columns of a round's row that describe its weights; all None without weights."""
    names = ("normaliser", "weight_sum", "weight_max", "effective_size")
    if not weights:
        return dict.fromkeys(names)
    total = math.fsum(weights)
    squares = math.fsum([weight * weight for weight in weights])
    effective_size = total**2 / squares if squares else 0.0
    return dict(zip(names, (normaliser, total, max(weights), effective_size), strict=True))

"""The weights of the built-in rules whose weights follow from the updates themselves.

The audit has them if the run has kept its updates. Distances are computed pair by pair; the server
computes them in blocks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from tests.oracles.formulas import ROUNDING, RoundContext, WeighedRound

from muster.common.tensors import Vector
from muster.emulator.run_audit.evidence import Row

_LEAST_LOSS = 1e-10
"""What q-fedavg adds to every loss."""

VectorFormula = Callable[[RoundContext, Sequence[Row], Sequence[Vector]], WeighedRound]
"""Takes the folded updates of a round in the order of their clients, as rows and as vectors."""


def tolerated(settings: Mapping[str, Any], size: int) -> int:
    """The number of wrong updates that a robust rule tolerates in a round with `size` updates."""
    stated = settings.get("byzantine")
    if stated is not None:
        return int(stated)
    return int(settings.get("byzantine_ratio", 0.0) * size + 1e-9)


def _krum(context: RoundContext, rows: Sequence[Row], vectors: Sequence[Vector]) -> WeighedRound:
    size = len(rows)
    wrong, multi = tolerated(context.settings, size), context.settings["kind"] == "multi-krum"
    most = size - wrong - 2
    count = min(context.settings.get("m") or most, most) if multi else 1
    chosen = _best(_distances(vectors), rows, list(range(size)), wrong)[:count]
    weights = [0.0] * size
    for place in chosen:
        weights[place] = context.discount(rows[place]) if multi else 1.0
    return WeighedRound(weights, math.fsum(weights))


def _bulyan(context: RoundContext, rows: Sequence[Row], vectors: Sequence[Vector]) -> WeighedRound:
    size, wrong = len(rows), tolerated(context.settings, len(rows))
    distances, left = _distances(vectors), list(range(size))
    for _ in range(size - 2 * wrong):
        left.remove(_best(distances, rows, left, wrong)[0])
    weights = [0.0 if place in left else 1.0 for place in range(size)]
    return WeighedRound(weights, math.fsum(weights))


def _distances(vectors: Sequence[Vector]) -> list[list[float]]:
    """The squared distances between all vectors."""
    found = [[0.0] * len(vectors) for _ in vectors]
    for one, first in enumerate(vectors):
        for other in range(one + 1, len(vectors)):
            apart = first.astype(np.float64) - vectors[other].astype(np.float64)
            found[one][other] = found[other][one] = math.fsum((apart * apart).tolist())
    return found


def _best(
    distances: Sequence[Sequence[float]], rows: Sequence[Row], left: Sequence[int], wrong: int
) -> list[int]:
    """The places that are left, from the best to the worst: that with the smallest sum of distances
    to its n − f − 2 neighbours first, and of equal ones that of the first name."""

    def score(place: int) -> float:
        others = sorted(distances[place][other] for other in left if other != place)
        return math.fsum(others[: max(len(left) - wrong - 2, 1)])

    return sorted(left, key=lambda place: (score(place), rows[place]["client"]))


def _q_fedavg(
    context: RoundContext, rows: Sequence[Row], vectors: Sequence[Vector]
) -> WeighedRound:
    """w = (F/F_max)^q and the divisor Σ h/(L·F_max^q) with h = q·F^(q−1)·‖L·Δ‖² + L·F^q."""
    q, losses = float(context.settings["q"]), [row["initial_loss"] + _LEAST_LOSS for row in rows]
    weights, parts = [], []
    for row, vector, loss in zip(rows, vectors, losses, strict=True):
        smoothness = context.settings.get("smoothness")
        if smoothness is None:
            smoothness = 1 / context.learning_rate(row["call_round"])
        squares = math.fsum((vector.astype(np.float64) ** 2).tolist())
        share, discount = loss / max(losses), context.discount(row)
        weights.append(share**q * discount)
        curvature = q * share ** (q - 1) * smoothness * squares / max(losses)
        parts.append((curvature + share**q) * discount)
    return WeighedRound(weights, math.fsum(parts), ROUNDING)


VECTOR_FORMULAS: Mapping[str, VectorFormula] = MappingProxyType(
    {"krum": _krum, "multi-krum": _krum, "bulyan": _bulyan, "q-fedavg": _q_fedavg}
)
"""The formulas by the names of the rules."""
